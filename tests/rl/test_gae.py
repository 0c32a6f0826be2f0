"""Generalised advantage estimation against sums written out (tests/plain_ppo.py)."""

from dataclasses import replace

import numpy as np
import plain_ppo
import pytest
from fakes import config
from hypothesis import given
from hypothesis import strategies as st
from policies import random_rows, rewarded

from flwr_agent.rl.gae import estimate
from flwr_agent.seeds import rng


def knobs(**keys):
    ppo = {"name": "ppo", "group_size": 1, "whiten": False}
    return config(**{f"algorithm__{name}": value for name, value in (ppo | keys).items()}).algorithm


def values_of(rows, seed=0):
    draw = rng("values", seed)
    return [draw.standard_normal(len(row.mask)) for row in rows]


@given(
    st.integers(0, 10**6),
    st.integers(1, 9),
    st.floats(0, 1),
    st.floats(0, 1),
    st.booleans(),
)
def test_advantages_and_returns_are_the_sums_of_the_definition(seed, num_rows, gamma, gae_lambda, whiten):
    rows = rewarded(num_rows, seed)
    values, chosen = values_of(rows, seed), knobs(gamma=gamma, gae_lambda=gae_lambda, whiten=whiten)
    found, returns = estimate(rows, values, chosen)
    expected, targets = plain_ppo.estimate(rows, values, chosen)
    for row, target, a, b in zip(returns, targets, found, expected, strict=True):
        np.testing.assert_allclose(row, target, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(a.advantages, b.advantages, rtol=1e-6, atol=1e-6)


def test_with_gamma_and_lambda_of_one_a_rows_every_token_returns_its_reward():
    [row] = random_rows(1, seed=3)
    row = replace(row, rewards=[0.0] * (len(row.mask) - 1) + [7.0], mask=[1] * len(row.mask))
    values = values_of([row])
    [found], [returns] = estimate([row], values, knobs())
    assert returns == pytest.approx([7.0] * len(row.mask))
    assert found.advantages == pytest.approx(7.0 - values[0])


def test_values_at_tokens_of_others_change_nothing():
    rows = rewarded(6, seed=1)
    values = values_of(rows)
    strange = [np.where(np.array(row.mask) == 1, v, np.nan) for row, v in zip(rows, values, strict=True)]
    for found, expected in zip(*(estimate(rows, v, knobs())[0] for v in (strange, values)), strict=True):
        assert found.advantages == expected.advantages


def test_credit_flows_back_through_a_chain_and_stops_where_it_begins():
    rows = [replace(row, rewards=[0.0] * len(row.mask)) for row in random_rows(3, seed=2)]
    rows[2] = replace(rows[2], rewards=[0.0] * (len(rows[2].mask) - 1) + [1.0], mask=[1] * len(rows[2].mask))
    rows[2] = replace(rows[2], continues=True)
    zero = [np.zeros(len(row.mask)) for row in rows]
    first, second, third = (found.advantages for found in estimate(rows, zero, knobs(gamma=0.5))[0])
    assert not any(first)
    assert third == pytest.approx([0.5 ** (len(third) - 1 - t) for t in range(len(third))])
    num_own = sum(rows[1].mask)
    own = [a for a, m in zip(second, rows[1].mask, strict=True) if m]
    assert own == pytest.approx([0.5 ** (len(third) - 1 + num_own - k) for k in range(num_own)])


def test_whitened_advantages_have_mean_zero_and_deviation_one():
    rows = rewarded(8, seed=4)
    found, _ = estimate(rows, values_of(rows), knobs(whiten=True))
    own = [a for row in found for a, m in zip(row.advantages, row.mask, strict=True) if m]
    assert np.mean(own) == pytest.approx(0, abs=1e-9)
    assert np.std(own) == pytest.approx(1, abs=1e-5)
