"""How alike the clients' updates are, from their lengths and the length of their mean alone."""

from __future__ import annotations

import math
from collections.abc import Sequence

from flwr_agent.arrays import ACTOR, distance, part
from flwr_agent.requests import Arrays
from strategies.fold import Fold


def likeness(fold: Fold, mean: Arrays) -> dict[str, float]:
    """`update_cosine` of a round whose clients say how far each moved the policy, else nothing; `mean` is their plain mean."""
    if not all(map(math.isfinite, fold.lengths)):
        return {}
    length = distance(part(mean, ACTOR), part(fold.base, ACTOR))
    cosine = mean_cosine(fold.lengths, fold.weights, length)
    return {} if cosine is None else {"update_cosine": cosine}


def mean_cosine(lengths: Sequence[float], weights: Sequence[float], mean_length: float) -> float | None:
    """Mean cosine over pairs of updates, each pair weighted by the product of its weights and lengths.

    With d the updates and m = sum w d / sum w: |sum w d|^2 = sum |w d|^2 + sum over pairs of w w' d d', so that no update has
    to be kept until another comes. For two updates it is their cosine.

    Args:
        lengths: Euclidean norm of each update.
        weights: of each in the mean.
        mean_length: Euclidean norm of the weighted mean.

    Returns:
        A value in [-1, 1], or None where there are no two updates that move.

    Example:
        >>> mean_cosine([3.0, 4.0], [1.0, 1.0], 2.5)
        0.0
    """
    parts = [weight * length for weight, length in zip(weights, lengths, strict=True)]
    squares, total = math.fsum(part * part for part in parts), math.fsum(parts)
    pairs = total * total - squares
    if not math.isfinite(pairs) or pairs <= 1e-12 * squares:
        return None
    whole = (math.fsum(weights) * mean_length) ** 2
    return max(-1.0, min(1.0, (whole - squares) / pairs))
