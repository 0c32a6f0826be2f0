import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flwr_agent.report.statistics import gain, wilson


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
