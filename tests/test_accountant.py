import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flwr_agent.accountant import ORDERS, epsilon

noises, counts, deltas = st.floats(0.3, 20.0), st.integers(1, 200), st.sampled_from([1e-3, 1e-5, 1e-8])


@given(noises, counts, deltas)
def test_the_spend_is_that_of_opacus(noise, rounds, delta):
    rdp = pytest.importorskip("opacus.accountants.analysis.rdp")
    spent = rdp.compute_rdp(q=1.0, noise_multiplier=noise, steps=rounds, orders=list(ORDERS))
    expected, _ = rdp.get_privacy_spent(orders=list(ORDERS), rdp=spent, delta=delta)
    assert epsilon(noise, rounds, delta) == pytest.approx(expected, rel=1e-9)


def exact_delta(noise, rounds, eps):
    """Delta of one Gaussian mechanism with the noise of all rounds (Balle and Wang, ICML 2018, Theorem 8)."""
    mu = math.sqrt(rounds) / noise
    tail = [0.5 * math.erfc(-x / math.sqrt(2)) for x in (mu / 2 - eps / mu, -mu / 2 - eps / mu)]
    return tail[0] - math.exp(eps) * tail[1]


@given(noises, counts, deltas)
def test_the_spend_bounds_the_exact_one_and_not_by_much(noise, rounds, delta):
    spent = epsilon(noise, rounds, delta)
    if spent < 500:
        assert exact_delta(noise, rounds, spent) <= delta * (1 + 1e-6)
        assert exact_delta(noise, rounds, 0.6 * spent) > delta


def test_nothing_is_spent_before_the_first_round_and_each_round_costs_more():
    spent = [epsilon(2.0, rounds, 1e-5) for rounds in range(5)]
    assert spent[0] == 0.0
    assert spent == sorted(set(spent))
