"""What Gaussian noise on sums of clipped updates spends, by Renyi differential privacy."""

from __future__ import annotations

import math

import numpy as np

ORDERS = 1 + np.geomspace(1e-3, 1e4, 4_000)
"""Renyi orders over which the bound is minimised."""


def epsilon(noise_multiplier: float, rounds: int, delta: float) -> float:
    """The epsilon at `delta` of `rounds` releases, each of a sum to which a client adds at most norm 1.

    Noise of standard deviation `noise_multiplier` on every coordinate costs `order / (2 noise_multiplier^2)` a round
    (Mironov, CSF 2017, Prop. 7); the sum over rounds is converted as in Canonne, Kamath and Steinke (NeurIPS 2020,
    Prop. 12). Two runs are adjacent if they differ in whether one client's updates are zero, in every round. The
    choice of clients is taken as known, so that it does not amplify privacy.

    Example:
        >>> round(epsilon(1.0, 10, 1e-5), 2)
        19.05
    """
    if rounds == 0:
        return 0.0
    spent = rounds * ORDERS / (2 * noise_multiplier**2)
    found = spent + np.log1p(-1 / ORDERS) - (math.log(delta) + np.log(ORDERS)) / (ORDERS - 1)
    return max(0.0, float(found.min()))
