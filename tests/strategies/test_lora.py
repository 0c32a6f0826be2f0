"""What the mean of LoRA factors loses, against matrices multiplied out; and the strategy that loses nothing."""

import numpy as np
import pytest
from fakes import FakeGrid, client, config
from hypothesis import given
from hypothesis import strategies as st

import strategies
from flwr_agent import protocol
from flwr_agent.arrays import from_record, to_record
from flwr_agent.errors import ConfigError
from flwr_agent.requests import TrainReply
from strategies.lora import FactorMean, LoraAverage, averaging_error

pytestmark = pytest.mark.usefixtures("task_identity")
A, B = "actor/x.lora_A.weight", "actor/x.lora_B.weight"


def adapters(count, rank, seed=0, modules=1, scale=1.0):
    """Factors of `count` clients."""
    draw = np.random.default_rng(seed)
    return [
        {
            name: (scale * draw.standard_normal(shape)).astype("f4")
            for m in range(modules)
            for name, shape in ((f"actor/m{m}.lora_A.weight", (rank, 7)), (f"actor/m{m}.lora_B.weight", (5, rank)))
        }
        for _ in range(count)
    ]


def mean_of(taken):
    mean = FactorMean()
    for weight, arrays in taken:
        mean.add(arrays, weight)
    return mean, mean.value()


def multiplied_out(taken):
    total = sum(weight for weight, _ in taken)
    lost = kept = 0.0
    for name_a in (name for name in taken[0][1] if ".lora_A." in name):
        name_b = name_a.replace("lora_A", "lora_B")
        mean = {n: sum(w * c[n].astype("f8") for w, c in taken) / total for n in (name_a, name_b)}
        product = sum(w * c[name_b].astype("f8") @ c[name_a].astype("f8") for w, c in taken) / total
        lost += np.sum((product - mean[name_b] @ mean[name_a]) ** 2)
        kept += np.sum(product**2)
    return np.sqrt(lost / kept)


@given(st.integers(1, 5), st.integers(1, 9), st.integers(0, 10**6), st.lists(st.floats(0.1, 9), min_size=5, max_size=5))
def test_the_error_is_that_of_the_matrices_multiplied_out(count, rank, seed, weights):
    taken = list(zip(weights, adapters(count, rank, seed, modules=2), strict=False))
    mean, _ = mean_of(taken)
    assert mean.error == pytest.approx(multiplied_out(taken), rel=1e-4, abs=1e-6)


def test_nothing_is_lost_where_clients_agree_on_a_factor():
    clients = adapters(3, 4)
    for name in (n for n in clients[0] if ".lora_A." in n):
        for one in clients[1:]:
            one[name] = clients[0][name]
    mean, _ = mean_of([(1.0, one) for one in clients])
    assert mean.error < 1e-6
    assert mean_of([(1.0, one) for one in adapters(3, 4)])[0].error > 0.1


def test_clients_that_point_opposite_ways_lose_everything_and_an_untouched_adapter_nothing():
    one = {A: np.ones((1, 2), "f4"), B: np.ones((2, 1), "f4")}
    other = {name: -values for name, values in one.items()}
    assert mean_of([(1.0, one), (1.0, other)])[0].error == pytest.approx(1.0)
    start = {A: np.ones((1, 2), "f4"), B: np.zeros((2, 1), "f4")}
    assert averaging_error(start, [(1.0, start), (2.0, start)]) == 0.0


def test_padding_with_zeros_changes_no_product():
    """A rank-1 client padded to rank 2 counts as the rank-1 update it made, at the same alpha / rank."""
    low, high = adapters(1, 1, seed=1)[0], adapters(1, 2, seed=2)[0]
    padded = {
        name: np.concatenate([values, np.zeros_like(values)], axis=0 if ".lora_A." in name else 1)
        for name, values in low.items()
    }
    stem = "actor/m0.lora_{}.weight"
    own = low[stem.format("B")] @ low[stem.format("A")]
    assert np.array_equal(padded[stem.format("B")] @ padded[stem.format("A")], own)
    taken = [(1.0, padded), (1.0, high)]
    assert mean_of(taken)[0].error == pytest.approx(multiplied_out(taken), rel=1e-4)


def round_of(name, clients):
    strategy = strategies.load(config(strategy__name=name, model__lora__rank=4, federation__total_clients=len(clients),
                                      federation__clients_per_round=len(clients)))  # fmt: skip

    def train(request):
        facts = {"round": request.round, "client_id": request.client_id, "num_examples": 1}
        return TrainReply(arrays=clients[request.client_id], metrics={"reward": 1.0}, **facts)

    record = protocol.run_record(config(), experiment="e", base_digest="b")
    grid = FakeGrid(client(train))
    strategy.placement = "any"
    return strategy.start(grid, to_record(dict(clients[0])), num_rounds=1, train_config=record)


def test_each_round_reports_its_error_and_the_model_is_the_mean_of_each_factor():
    clients = adapters(2, 4)
    result = round_of("lora_average", clients)
    metrics = result.train_metrics_clientapp[1]
    assert metrics["lora/averaging_error"] == pytest.approx(multiplied_out([(1.0, c) for c in clients]), rel=1e-4)
    for name, values in from_record(result.arrays).items():
        np.testing.assert_allclose(values, (clients[0][name] + clients[1][name]) / 2, rtol=1e-6)


def test_a_shared_a_makes_the_mean_of_products_exact():
    clients = [{n: v for n, v in one.items() if ".lora_B." in n} for one in adapters(3, 4)]
    shared = np.random.default_rng(5).standard_normal((4, 7))
    found = from_record(round_of("lora_frozen_a", clients).arrays)
    for name, values in found.items():
        expected = sum(one[name].astype("f8") @ shared for one in clients) / 3
        np.testing.assert_allclose(values.astype("f8") @ shared, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["lora_average", "lora_frozen_a"])
def test_a_lora_strategy_without_adapters_is_refused(name):
    with pytest.raises(ConfigError, match="averages LoRA adapters; set a rank") as caught:
        strategies.load(config(strategy__name=name))
    assert caught.value.key == "model.lora.rank"


@pytest.mark.parametrize("ranks", ["4,0", "4,9", "four", "4,", "-1"])
def test_ranks_are_whole_numbers_up_to_the_full_one(ranks):
    with pytest.raises(ConfigError, match=r"from 1 to model.lora.rank=8") as caught:
        strategies.load(config(strategy__name="lora_average", model__lora__rank=8, model__lora__client_ranks=ranks))
    assert caught.value.key == "model.lora.client_ranks"


def test_ranks_that_differ_need_factors_of_their_own():
    with pytest.raises(ConfigError, match="have one rank"):
        strategies.load(config(strategy__name="lora_frozen_a", model__lora__rank=8, model__lora__client_ranks="8,4"))


def test_the_average_is_fedprox_where_it_has_a_coefficient():
    strategy = strategies.load(config(strategy__name="lora_average", model__lora__rank=2, strategy__prox_mu=0.5))
    assert isinstance(strategy, LoraAverage)
    assert strategy.train_config(protocol.run_record(config(), experiment="e", base_digest="b"))["proximal-mu"] == 0.5
