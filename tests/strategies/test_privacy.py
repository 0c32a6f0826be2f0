import numpy as np
import pytest
from fakes import InMemoryGrid, client, config, model, train
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import strategies
from flwr_agent import protocol
from flwr_agent.accountant import epsilon
from flwr_agent.arrays import digest, from_record, to_record
from flwr_agent.errors import BudgetError, ConfigError, ResumeError
from strategies import CentralDP, FedAdam, FedAvg, Observer
from strategies.privacy import KEY_FILE, ClippedMean

RUN = protocol.run_record(config(), experiment="run", base_digest="base")
DP = {"privacy__noise_multiplier": 1.0, "privacy__clip": 0.5}
ROWS = st.integers(1, 6)


def norm(arrays):
    return float(np.sqrt(sum(np.square(values, dtype="f8").sum() for values in arrays.values())))


@given(hnp.arrays(np.float32, st.tuples(ROWS, st.just(7)), elements=st.floats(-9, 9, width=32)), st.floats(0.01, 50))
def test_the_clipped_mean_is_written_out(updates, clip):
    mean = ClippedMean(clip=clip, num_clients=8)
    for update in updates:
        mean.add({"a": update[:3], "b": update[3:]}, 1.0)
    exact = updates.astype("f8")
    lengths = np.maximum(np.linalg.norm(exact, axis=1, keepdims=True), 1e-30)
    expected = (exact * np.minimum(1, clip / lengths)).sum(axis=0) / 8
    found = mean.value()
    np.testing.assert_allclose(np.concatenate([found["a"], found["b"]]), expected, rtol=1e-4, atol=1e-6)


@given(st.floats(1e-3, 1e6))
def test_one_client_moves_the_mean_by_its_share_of_the_clip_at_most(size):
    base, update = model(), model(1, scale=size)
    alone, shifted = ClippedMean(clip=2.0, num_clients=5), ClippedMean(clip=2.0, num_clients=5, base=base)
    alone.add(update, 1.0)
    shifted.add({name: base[name] + update[name] for name in base}, 1.0)
    assert norm(alone.value()) <= 2.0 / 5 * (1 + 1e-5)
    assert norm(shifted.value()) <= 2.0 / 5 * (1 + 1e-5)


def noisy(privacy, round_=1, accepted=(0, 1), size=200_000):
    mean = {"w": np.zeros(size, "f4"), "v": np.zeros((2, size), "f4")}
    privacy.add_noise(mean, num_clients=4, round_=round_, accepted=accepted)
    return mean


PRIVACY = CentralDP(clip=2.0, noise_multiplier=3.0, key=b"k" * 32)


def test_the_noise_is_gaussian_with_the_stated_deviation_and_independent_by_array():
    found = noisy(PRIVACY)
    for values in found.values():
        assert values.std() == pytest.approx(3.0 * 2.0 / 4, rel=0.01)
        assert abs(values.mean()) < 0.02
        assert np.mean(np.abs(values) < 1.5) == pytest.approx(0.6827, abs=0.005)
    assert abs(np.corrcoef(found["w"], found["v"][0])[0, 1]) < 0.01


def test_the_noise_is_a_function_of_secret_round_and_clients_alone():
    once = digest(noisy(PRIVACY, size=9))
    assert digest(noisy(PRIVACY, accepted=[1, 0], size=9)) == once
    others = [
        noisy(PRIVACY, round_=2, size=9),
        noisy(PRIVACY, accepted=(0, 2), size=9),
        noisy(CentralDP(clip=2.0, noise_multiplier=3.0, key=b"K" * 32), size=9),
        noisy(CentralDP(clip=2.0, noise_multiplier=3.0), size=9),
    ]
    assert len({once, *map(digest, others)}) == 5


def test_a_secret_is_made_once_for_its_owner_alone_and_a_damaged_one_is_refused(tmp_path):
    privacy = CentralDP(clip=2.0, noise_multiplier=3.0, key=tmp_path / KEY_FILE)
    once = digest(noisy(privacy, size=9))
    assert (tmp_path / KEY_FILE).stat().st_mode & 0o777 == 0o600
    assert digest(noisy(CentralDP(clip=2.0, noise_multiplier=3.0, key=tmp_path / KEY_FILE), size=9)) == once
    (tmp_path / KEY_FILE).write_bytes(b"short")
    with pytest.raises(ResumeError, match="damaged"):
        noisy(privacy, size=9)


@pytest.mark.usefixtures("task_identity")
def test_a_run_that_has_lost_its_secret_does_not_go_on_with_another(tmp_path):
    played(private(tmp_path), num_rounds=2)
    (tmp_path / KEY_FILE).unlink()
    with pytest.raises(ResumeError, match=r"privacy.key is missing.*restore it, or set fresh=true"):
        private(tmp_path).start(
            InMemoryGrid(pytest.fail), to_record(model()), num_rounds=3, train_config=RUN, first_round=3
        )
    assert not (tmp_path / KEY_FILE).exists()


def private(tmp_path, **keys):
    return strategies.load(config(output_dir=str(tmp_path), **(DP | keys)))


def played(strategy, num_rounds=1, observer=None, **transport):
    grid = InMemoryGrid(client(), **transport)
    result = strategy.start(
        grid, to_record(model()), num_rounds=num_rounds, timeout=0.1, train_config=RUN, observer=observer
    )
    return from_record(result.arrays)


@pytest.mark.usefixtures("task_identity")
def test_a_private_round_is_the_clipped_mean_with_the_noise_of_its_clients(tmp_path):
    found = played(private(tmp_path))
    mean = ClippedMean(clip=0.5, num_clients=2, base=model())
    for client_id in (0, 1):
        record = protocol.addressed(RUN, round_=1, client_id=client_id, placement="any")
        request = protocol.train_request(protocol.request_content(to_record(model()), record), {})
        mean.add(train(request).arrays, 1.0)
    expected = mean.value()
    CentralDP(clip=0.5, noise_multiplier=1.0, key=tmp_path / KEY_FILE).add_noise(
        expected, num_clients=2, round_=1, accepted=[0, 1]
    )
    for name, values in model().items():
        np.testing.assert_array_equal(found[name], expected[name] + values)


@pytest.mark.usefixtures("task_identity")
def test_an_absent_client_counts_as_zero_and_a_resumed_round_has_the_same_noise(tmp_path):
    def without(client_id):
        strategy = private(tmp_path, privacy__noise_multiplier=1e-12)
        return played(strategy, refuse=lambda m: protocol.client_of(m.content) == client_id)

    both, first, second = played(private(tmp_path, privacy__noise_multiplier=1e-12)), without(1), without(0)
    for name, base in model().items():
        np.testing.assert_allclose(both[name] - base, first[name] - base + second[name] - base, atol=1e-6)
    assert digest(played(private(tmp_path))) == digest(played(private(tmp_path)))


@pytest.mark.usefixtures("task_identity")
def test_weights_and_deltas_give_the_same_private_round(tmp_path):
    keys = {"strategy__payload": "delta"}
    record = protocol.run_record(config(**keys), experiment="run", base_digest="base")
    result = private(tmp_path, **keys).start(
        InMemoryGrid(client()), to_record(model()), num_rounds=1, train_config=record
    )
    for name, values in played(private(tmp_path)).items():
        np.testing.assert_allclose(from_record(result.arrays)[name], values, atol=1e-5)


@pytest.mark.usefixtures("task_identity")
def test_the_spend_is_told_each_round_and_a_round_beyond_the_budget_is_not_begun(tmp_path):
    rounds = []

    class Notes(Observer):
        def finished(self, round_):
            rounds.append(round_)

    budget = (epsilon(1.0, 2, 1e-5) + epsilon(1.0, 3, 1e-5)) / 2
    with pytest.raises(BudgetError, match=r"round 3 would spend epsilon=.* beyond privacy.budget=.*model of round 2"):
        played(private(tmp_path, privacy__budget=budget), num_rounds=5, observer=Notes())
    assert [(r.round, r.privacy) for r in rounds] == [
        (n, {"epsilon": epsilon(1.0, n, 1e-5), "delta": 1e-5}) for n in (1, 2)
    ]


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"federation__weights": "examples"}, "^federation.weights='examples': with noise every client counts alike"),
        ({"federation__weights": "1,2"}, "with noise every client counts alike"),
        (
            {
                "strategy__name": "fedmedian",
                "federation__total_clients": 3,
                "federation__clients_per_round": 3,
            },
            "^privacy.noise_multiplier=1.0: noise is calibrated for a mean, which FedMedian is not",
        ),
    ],
)
def test_noise_with_other_weights_or_robust_rules_is_refused(keys, message, tmp_path):
    with pytest.raises(ConfigError, match=message):
        private(tmp_path, **keys)


@pytest.mark.usefixtures("task_identity")
def test_a_server_optimizer_steps_along_the_private_mean(tmp_path):
    plain, noisy_ = FedAvg(total_clients=2, clients_per_round=2), private(tmp_path, strategy__name="fedadam")
    assert isinstance(noisy_, FedAdam)
    assert digest(played(noisy_)) != digest(played(plain))
    assert (tmp_path / KEY_FILE).is_file()


def test_without_noise_there_is_no_secret_and_no_privacy(tmp_path):
    assert private(tmp_path, privacy__noise_multiplier=0.0).privacy is None
