"""Advantages from a critic: generalised advantage estimation (Schulman et al. 2016, eqs. 11-16) over the model's tokens.

A token's value is the critic's before the token is said; the token after the last one of a chain has value 0, because an
episode that ran out of turns has ended too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from flwr_agent.config import AlgorithmConfig
from flwr_agent.rl.samples import EPSILON, Sample

Rows = list[np.ndarray]
"""One float64 array `[T]` per row."""


def estimate(samples: Sequence[Sample], values: Rows, algorithm: AlgorithmConfig) -> tuple[list[Sample], Rows]:
    """Rows with their advantages, and the returns that the critic learns; both are 0 at the tokens of others.

    With `whiten`, the advantages of all tokens together have mean 0 and (population) standard deviation 1.
    """
    advantages: Rows = [np.zeros(0)] * len(samples)
    last = following = 0.0  # advantage and value of the next token in the chain
    for i in reversed(range(len(samples))):
        row = np.zeros(len(samples[i].mask))
        for t in reversed(np.flatnonzero(samples[i].mask)):
            error = samples[i].rewards[t] + algorithm.gamma * following - values[i][t]
            row[t] = last = error + algorithm.gamma * algorithm.gae_lambda * last
            following = values[i][t]
        advantages[i] = row
        if not samples[i].continues:
            last = following = 0.0
    masks = [np.array(sample.mask, dtype=bool) for sample in samples]
    returns = [np.where(m, a + v, 0.0) for m, a, v in zip(masks, advantages, values, strict=True)]
    if algorithm.whiten and samples:
        advantages = _whitened(advantages, masks)
    return [replace(s, advantages=a.tolist()) for s, a in zip(samples, advantages, strict=True)], returns


def _whitened(rows: Rows, masks: Rows) -> Rows:
    own = np.concatenate([row[mask] for row, mask in zip(rows, masks, strict=True)])
    mean, std = own.mean(), own.std()
    return [np.where(mask, (row - mean) / (std + EPSILON), 0.0) for row, mask in zip(rows, masks, strict=True)]
