"""Intervals for success rates: Wilson's for one rate, a paired bootstrap for a gain on the same tasks."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from flwr_agent.seeds import rng

Z95 = 1.959963984540054
"""Two-sided 95 % quantile of the normal distribution."""


def wilson(successes: float, trials: int, *, z: float = Z95) -> tuple[float, float]:
    """95 % interval of a success rate (Wilson 1927, JASA 22:209).

    Example:
        >>> [round(bound, 3) for bound in wilson(50, 100)]
        [0.404, 0.596]
    """
    if trials == 0:
        return 0.0, 1.0
    rate, square = successes / trials, z * z
    centre = (rate + square / (2 * trials)) / (1 + square / trials)
    half = z * math.sqrt(rate * (1 - rate) / trials + square / (4 * trials**2)) / (1 + square / trials)
    return max(0.0, centre - half), min(1.0, centre + half)


def gain(before: Sequence[float], after: Sequence[Sequence[float]], *, draws: int = 10_000) -> tuple[float, float]:
    """Mean gain per task and its lower 95 % bound, by a bootstrap over tasks.

    Args:
        before: outcome of each task before training `[N]`.
        after: outcomes of the same tasks in each of the rounds that count `[R, N]`; their mean is taken.
        draws: bootstrap resamples.

    Example:
        >>> gain([0, 0, 0, 0], [[1, 1, 1, 1]])
        (1.0, 1.0)
    """
    differences_N = np.mean(np.asarray(after, dtype=float), axis=0) - np.asarray(before, dtype=float)
    picks = rng("paired bootstrap", len(differences_N)).integers(len(differences_N), size=(draws, len(differences_N)))
    return float(differences_N.mean()), float(np.quantile(differences_N[picks].mean(axis=1), 0.025))
