import numpy as np
import pytest
from fakes import InMemoryGrid, client, config, model
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import strategy as flowers
from hypothesis import assume, given
from hypothesis import strategies as st

import strategies
from flwr_agent import protocol
from flwr_agent.arrays import digest, from_record, to_record
from strategies import FedAdagrad, FedAdam, FedAvg, FedAvgM, FedYogi, aggregate

WHO = {"total_clients": 2, "clients_per_round": 2}
RUN = protocol.run_record(config(), experiment="run", base_digest="base")
OURS = {"fedavgm": FedAvgM, "fedadagrad": FedAdagrad, "fedadam": FedAdam, "fedyogi": FedYogi}


def made(name, **keys):
    return strategies.load(config(strategy__name=name, **keys))


def in_float64(name, w, means, lr, beta=0.9, beta2=0.99, tau=1e-3):
    """The published algorithms, written down once more."""
    m, v = 0.0, tau**2
    for mean in means:
        update = mean - w
        m = beta * m + (update if name == "fedavgm" else (1 - beta) * update)
        if name == "fedadagrad":
            v = v + update**2
        elif name == "fedadam":
            v = beta2 * v + (1 - beta2) * update**2
        elif name == "fedyogi":
            assume(abs(v - update**2) > 1e-4 * v)  # where the sign of the difference is not one of rounding
            v = v - (1 - beta2) * update**2 * np.sign(v - update**2)
        w = w + lr * m / (1.0 if name == "fedavgm" else np.sqrt(v) + tau)
    return w


values = st.floats(-2, 2, width=32)


@pytest.mark.parametrize("name", OURS)
@given(w=values, means=st.lists(values, min_size=1, max_size=5), lr=st.floats(1e-3, 1.0))
def test_a_server_optimizer_is_the_published_algorithm(name, w, means, lr):
    strategy, model_ = made(name, strategy__server_lr=lr), {"w": np.float32([w])}
    for mean in means:
        model_ = strategy.step(model_, {"w": np.float32([mean])})
    np.testing.assert_allclose(model_["w"][0], in_float64(name, w, means, lr), rtol=1e-4, atol=1e-4)


def flowers_rounds(strategy, means):
    """Flower's own strategy fed with one reply a round."""
    arrays = {"w": np.float32([0.5, -1.0, 2.0])}
    for round_, mean in enumerate(means, 1):
        strategy.current_arrays = arrays
        content = RecordDict({"a": ArrayRecord({"w": Array(np.float32(mean))}), "m": MetricRecord({"num-examples": 1})})
        new, _ = strategy.aggregate_train(round_, [Message(content, 1, "train")])
        arrays = {"w": new["w"].numpy()}
    return arrays["w"]


@pytest.mark.usefixtures("task_identity")
@pytest.mark.parametrize("name", ["fedadagrad", "fedyogi"])
def test_from_second_moments_of_zero_a_server_optimizer_is_flowers(name):
    means = np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32)
    ours, arrays = made(name, strategy__server_lr=0.1), {"w": np.float32([0.5, -1.0, 2.0])}
    ours.load_state({"first/w": np.zeros(3, "f4"), "second/w": np.zeros(3, "f4")})
    for mean in means:
        arrays = ours.step(arrays, {"w": mean.copy()})
    theirs = {"fedadagrad": flowers.FedAdagrad, "fedyogi": flowers.FedYogi}[name]
    extra = {} if name == "fedadagrad" else {"beta_2": 0.99}
    its = theirs(eta=0.1, tau=1e-3, **({"beta_1": 0.9} if name == "fedyogi" else {}), **extra)
    its.beta_1 = 0.9
    np.testing.assert_allclose(arrays["w"], flowers_rounds(its, means), rtol=1e-5)


def test_momentum_zero_and_step_one_is_fedavg():
    kept, mean = model(0), model(1)
    found = FedAvgM(server_lr=1.0, momentum=0.0, **WHO).step(kept, dict(mean))
    for name, value in model(1).items():
        np.testing.assert_allclose(found[name], value, rtol=1e-5, atol=1e-6)


def test_small_updates_move_an_adaptive_optimizer_like_fedavgm_with_the_same_average():
    update = np.float32([1e-6, -3e-6])
    arrays = {"w": np.zeros(2, "f4")}
    found = made("fedadam").step(arrays, {"w": update.copy()})
    np.testing.assert_allclose(found["w"], 0.1 * update / 2, rtol=0.02)


@pytest.mark.usefixtures("task_identity")
@pytest.mark.parametrize("name", OURS)
def test_a_run_split_in_two_with_its_state_ends_in_the_same_bits_and_without_it_does_not(name):
    def rounds(strategy, arrays, first, last):
        return strategy.start(InMemoryGrid(client()), arrays, num_rounds=last, first_round=first, train_config=RUN)

    whole = rounds(made(name), to_record(model()), 1, 4)
    before = made(name)
    half = rounds(before, to_record(model()), 1, 2)
    saved = {key: np.array(value) for key, value in before.state_arrays().items()}
    after, forgetful = made(name), made(name)
    after.load_state(saved)
    assert same(rounds(after, half.arrays, 3, 4), whole)
    assert not same(rounds(forgetful, half.arrays, 3, 4), whole)


def same(one, other):
    return digest(from_record(one.arrays)) == digest(from_record(other.arrays))


def test_state_is_empty_before_the_first_round_and_foreign_state_is_refused():
    strategy = made("fedadam")
    assert strategy.state_arrays() == {}
    strategy.step(model(), model(1))
    assert {key.partition("/")[0] for key in strategy.state_arrays()} == {"first", "second"}
    with pytest.raises(ValueError, match="FedAvgM keeps no 'second/"):
        made("fedavgm").load_state(strategy.state_arrays())
    with pytest.raises(ValueError, match="FedAvg keeps no 'first/"):
        FedAvg(**WHO).load_state(strategy.state_arrays())
    FedAvg(**WHO).load_state({})


def test_bits_do_not_depend_on_spans_or_blocks(monkeypatch):
    size = 3 * aggregate.BLOCK + 5
    old, mean = ({"w": np.random.default_rng(i).standard_normal(size, dtype=np.float32)} for i in range(2))
    whole = made("fedyogi").step(old, {"w": mean["w"].copy()})["w"]
    monkeypatch.setattr(aggregate, "SPAN", 999)
    monkeypatch.setattr(aggregate, "BLOCK", 64)
    assert np.array_equal(made("fedyogi").step(old, mean)["w"], whole)


def test_every_knob_reaches_its_optimizer():
    keys = {"strategy__server_lr": 0.5, "strategy__momentum": 0.25, "strategy__beta2": 0.75, "strategy__tau": 0.125}
    found = made("fedyogi", **keys)
    assert (found.server_lr, found.momentum, found.beta2, found.tau) == (0.5, 0.25, 0.75, 0.125)
    assert made("fedavgm").server_lr == 1.0
    assert made("fedadam", strategy__tau=0.125).server_lr == 0.125
