"""Intervals for success rates: Wilson's for one rate, bootstraps for differences on the same tasks."""

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


def difference(differences: np.ndarray, *, draws: int = 10_000) -> tuple[float, float, float]:
    """Mean difference over seeds and tasks, and its 95 % interval by a hierarchical bootstrap.

    Seeds are drawn with replacement, then tasks within each drawn seed, so that neither many tasks of one seed nor many
    seeds on one task count for more than they are (Davison and Hinkley 1997, section 3.8).

    Args:
        differences: of one arm to another, seed by seed on the same tasks `[S, N]`.
        draws: bootstrap resamples.

    Example:
        >>> difference(np.ones((5, 8)))
        (1.0, 1.0, 1.0)
    """
    num_seeds, num_tasks = differences.shape
    draw = rng("hierarchical bootstrap", num_seeds, num_tasks)
    means = np.empty(draws)
    for i in range(draws):
        seeds_S = draw.integers(num_seeds, size=num_seeds)
        means[i] = differences[seeds_S[:, None], draw.integers(num_tasks, size=(num_seeds, num_tasks))].mean()
    low, high = np.quantile(means, (0.025, 0.975))
    return float(differences.mean()), float(low), float(high)
