import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flwr_agent.report.statistics import difference, gain, wilson


@given(st.integers(1, 500), st.data())
def test_wilson_bounds_are_the_roots_of_the_score_equation(trials, data):
    successes = data.draw(st.integers(0, trials))
    rate = successes / trials
    for bound in wilson(successes, trials):
        if 1e-6 < bound < 1.0 - 1e-6:
            z = (rate - bound) / math.sqrt(bound * (1 - bound) / trials)
            assert abs(z) == pytest.approx(1.959963984540054, rel=1e-6)


def test_a_gain_is_taken_over_the_mean_of_the_last_rounds_on_the_same_tasks():
    mean, low = gain([0, 0, 1, 0] * 64, [[1, 0, 1, 0] * 64, [1, 1, 1, 0] * 64])
    assert mean == pytest.approx(0.375)
    assert 0.3 < low < mean


def test_no_change_is_no_gain():
    assert gain([0, 1, 1], [[0, 1, 1]]) == (0.0, 0.0)


def test_a_hierarchical_interval_is_wider_than_one_that_takes_tasks_for_independent():
    generator = np.random.default_rng(0)
    effects = generator.normal(0.1, 0.1, size=(5, 1))
    differences = effects + generator.normal(0, 0.3, size=(5, 400))
    mean, low, high = difference(differences, draws=2000)
    naive = 1.96 * differences.std() / differences.size**0.5
    assert mean == pytest.approx(differences.mean())
    assert high - low > 2 * 2 * naive


@pytest.mark.slow
def test_a_hierarchical_interval_covers_the_truth_about_as_often_as_it_says():
    generator, hits = np.random.default_rng(1), 0
    for _ in range(200):
        effects = generator.normal(0.1, 0.05, size=(12, 1))
        _, low, high = difference(effects + generator.normal(0, 0.3, size=(12, 100)), draws=400)
        hits += low <= 0.1 <= high
    assert 0.85 <= hits / 200 <= 1.0


def test_no_difference_has_no_width():
    assert difference(np.zeros((3, 7)), draws=50) == (0.0, 0.0, 0.0)
