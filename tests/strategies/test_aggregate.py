import weakref

import numpy as np
import pytest
from fakes import model
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from flwr_agent.arrays import BLOCK, digest
from strategies import aggregate
from strategies.aggregate import Mean

finite = st.floats(-1e3, 1e3, width=32)
weights = st.floats(1e-3, 1e6)


def mean_of(values, its_weights):
    mean = Mean()
    for value, weight in zip(values, its_weights, strict=True):
        mean.add({"w": value}, weight)
    return mean.value()["w"]


@given(hnp.arrays(np.float32, (7,), elements=st.floats(width=32, allow_nan=False, allow_infinity=False)), weights)
def test_one_client_is_its_own_mean_bit_for_bit(values, weight):
    assert mean_of([values], [weight]).tobytes() == values.tobytes()


@given(hnp.arrays(np.float32, (7,), elements=finite), st.lists(weights, min_size=1, max_size=12))
def test_equal_clients_are_their_own_mean_bit_for_bit_whatever_their_weights(values, many):
    assert np.array_equal(mean_of([values] * len(many), many), values)


@given(st.lists(st.tuples(hnp.arrays(np.float32, (5,), elements=finite), weights), min_size=1, max_size=12))
def test_the_mean_is_within_rounding_of_the_exact_one(replies):
    values, many = zip(*replies, strict=True)
    exact = np.average(np.asarray(values, dtype=np.float64), axis=0, weights=many)
    np.testing.assert_allclose(mean_of(values, many), exact, rtol=1e-6, atol=1e-30 + 1e-6 * np.abs(values).max())


@given(st.lists(st.tuples(hnp.arrays(np.float32, (5,), elements=finite), weights), min_size=1, max_size=7))
def test_waiting_for_the_next_reply_changes_no_bit(replies):
    one_by_one, total = replies[0][0].copy(), replies[0][1]
    for values, weight in replies[1:]:
        total += weight
        one_by_one += (values - one_by_one) * np.float32(weight / total)
    assert np.array_equal(mean_of(*zip(*replies, strict=True)), one_by_one)


def test_at_most_one_reply_waits_for_the_next():
    mean, given_out = Mean(), []
    for seed in range(5):
        reply = model(seed)
        given_out += map(weakref.ref, reply.values())
        mean.add(reply, 1.0)
        del reply
        assert sum(ref() is not None for ref in given_out) <= len(model())
    mean.value()
    assert not any(ref() is not None for ref in given_out)


def test_bits_do_not_depend_on_threads_or_spans(monkeypatch):
    replies = [np.random.default_rng(i).standard_normal(3 * BLOCK + 5, dtype=np.float32) for i in range(3)]
    whole = mean_of(replies, [1, 2, 3])
    monkeypatch.setattr(aggregate, "NUM_THREADS", 1)
    monkeypatch.setattr(aggregate, "SPAN", 1000)
    monkeypatch.setattr(aggregate, "BLOCK", 77)
    assert np.array_equal(mean_of(replies, [1, 2, 3]), whole)


def test_a_mean_never_writes_into_a_reply():
    replies = [model(seed) for seed in range(3)]
    mean = Mean()
    for reply in replies:
        mean.add(reply, 1.0)
    assert [digest(reply) for reply in replies] == [digest(model(seed)) for seed in range(3)]


def test_a_mean_that_was_handed_out_starts_again():
    mean = Mean()
    mean.add(model(0), 5.0)
    mean.value()
    mean.add(model(1), 1.0)
    assert digest(mean.value()) == digest(model(1))


@pytest.mark.parametrize("weight", [0.0, -1.0])
def test_a_weight_that_is_not_positive_is_refused(weight):
    with pytest.raises(ValueError, match="positive"):
        Mean().add(model(), weight)
