import tempfile

import numpy as np
import pytest
from fakes import InMemoryGrid, client, config, model, train
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import strategy as flowers
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import strategies
from flwr_agent import protocol
from flwr_agent.arrays import from_record, to_record
from flwr_agent.errors import ConfigError, QuorumError
from strategies import FedMedian, FedTrimmedAvg, Krum, aggregate

RUN = protocol.run_record(config(), experiment="run", base_digest="base")
RULES = {"fedmedian": FedMedian, "fedtrimmedavg": FedTrimmedAvg, "krum": Krum}


def who(num):
    return {"total_clients": num, "clients_per_round": num}


def combined(strategy, replies):
    into = strategy.aggregator()
    for reply in replies:
        into.add({"a": reply[:2].reshape(2, 1), "b": reply[2:]}, 1.0)
    found = into.value()
    assert found["a"].shape == (2, 1)
    return np.concatenate([found["a"].reshape(-1), found["b"]])


replies_of = hnp.arrays(np.float32, st.tuples(st.integers(5, 9), st.just(6)), elements=st.floats(-9, 9, width=32))


@given(replies_of)
def test_the_median_is_numpys(replies):
    assert np.array_equal(combined(FedMedian(**who(len(replies))), replies), np.median(replies, axis=0))


@given(replies_of, st.floats(0.2, 0.45))
def test_the_trimmed_mean_drops_both_ends(replies, trim):
    cut = int(trim * len(replies))
    expected = np.sort(replies, axis=0)[cut : len(replies) - cut].mean(axis=0)
    found = combined(FedTrimmedAvg(trim=trim, **who(len(replies))), replies)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def scores(replies, byzantine):
    """Krum's scores, pair by pair."""
    found = []
    for i, mine in enumerate(replies):
        apart = sorted(float(((mine.astype("f8") - o) ** 2).sum()) for j, o in enumerate(replies) if j != i)
        found.append(sum(apart[: len(replies) - byzantine - 2]))
    return found


@given(replies_of, st.integers(0, 1))
def test_krum_is_the_reply_with_the_lowest_score(replies, byzantine):
    found = combined(Krum(byzantine=byzantine, **who(len(replies))), replies)
    its = scores(replies, byzantine)
    chosen = [i for i, reply in enumerate(replies) if np.array_equal(reply, found)]
    assert its[chosen[0]] == pytest.approx(min(its), rel=1e-9, abs=1e-12)


def test_multi_krum_averages_the_lowest_scores():
    replies = np.float32([[i, 0, 0, 0, 0, 0] for i in (0, 1, 2, 3, 90)])
    best = np.argsort(scores(replies, 1))[:2]
    found = combined(Krum(byzantine=1, keep=2, **who(5)), replies)
    np.testing.assert_allclose(found, replies[best].mean(axis=0))


def test_krum_sees_small_differences_beside_a_huge_outlier():
    replies = np.float32([[1e6] * 6, [1.0] * 6, [1.0001] * 6, [1.0002] * 6, [1.5] * 6])
    assert np.array_equal(combined(Krum(byzantine=1, **who(5)), replies), replies[2])


@pytest.mark.usefixtures("task_identity")
@pytest.mark.parametrize(("name", "theirs"), [("fedmedian", flowers.FedMedian()), ("krum", flowers.Krum())])
def test_a_rule_gives_what_flowers_gives(name, theirs):
    replies = np.random.default_rng(3).standard_normal((7, 6)).astype(np.float32)
    contents = [
        RecordDict({"a": ArrayRecord({"w": Array(reply)}), "m": MetricRecord({"num-examples": 1})}) for reply in replies
    ]
    expected, _ = theirs.aggregate_train(1, [Message(content, 1, "train") for content in contents])
    np.testing.assert_allclose(combined(RULES[name](**who(7)), replies), expected["w"].numpy(), rtol=1e-6)


@pytest.mark.parametrize("name", RULES)
def test_bits_do_not_depend_on_spans_or_blocks(name, monkeypatch):
    replies = np.random.default_rng(1).standard_normal((5, 2 * aggregate.BLOCK + 9), dtype=np.float32)
    whole = combined(RULES[name](**who(5)), replies)
    monkeypatch.setattr(aggregate, "SPAN", 50_001)
    monkeypatch.setattr(aggregate, "BLOCK", 10_007)
    assert np.array_equal(combined(RULES[name](**who(5)), replies), whole)


@pytest.mark.usefixtures("task_identity")
@pytest.mark.parametrize("name", RULES)
def test_one_poisoned_client_of_five_moves_the_mean_far_and_a_robust_rule_little(name, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def poisoned(request):
        reply = train(request)
        if request.client_id == 2:
            for values in reply.arrays.values():
                values += np.float32(1e6)
        return reply

    def after(strategy, trainer):
        grid = InMemoryGrid(client(trainer))
        return from_record(strategy.start(grid, to_record(model()), num_rounds=1, train_config=RUN).arrays)

    keys = {"federation__total_clients": 5, "federation__clients_per_round": 5, "strategy__name": name}
    if name == "krum":
        keys["strategy__byzantine"] = 1
    clean, attacked = (after(strategies.load(config(**keys)), trainer) for trainer in (train, poisoned))
    averaged = after(strategies.FedAvg(**who(5)), poisoned)
    for key, values in clean.items():
        assert np.abs(attacked[key] - values).max() < 5
        assert np.abs(averaged[key] - values).max() > 1e5
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"strategy__name": "fedmedian"}, "fedmedian with these settings needs at least 3 clients"),
        ({"strategy__name": "krum", "strategy__byzantine": 2}, "needs at least 7 clients a round"),
        ({"strategy__name": "krum", "strategy__keep": 4}, "needs at least 6 clients a round"),
        ({"strategy__name": "fedtrimmedavg", "strategy__trim": 0.1}, "needs at least 10 clients a round"),
        ({"strategy__name": "krum", "federation__weights": "examples"}, "counts all clients alike; use uniform"),
    ],
)
def test_too_few_clients_and_other_weights_are_refused(keys, message):
    with pytest.raises(ConfigError, match=message):
        strategies.load(config(**keys))


@pytest.mark.usefixtures("task_identity")
def test_a_round_with_too_few_replies_for_its_rule_is_no_quorum():
    grid = InMemoryGrid(client(), refuse=lambda message: protocol.client_of(message.content) == 0)
    with pytest.raises(QuorumError, match="4 usable replies"):
        Krum(byzantine=1, **who(5)).start(grid, to_record(model()), num_rounds=1, timeout=0.1, train_config=RUN)
