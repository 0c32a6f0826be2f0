"""The two primitives behind every sized partition: Beta-distributed shard sizes, and an assignment with overlap.

Both draw from one `numpy.random.Generator`, so that a strategy's whole stream is fixed by its seed; every client
replays it and keeps its own row.
"""

from __future__ import annotations

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

Sizes = NDArray[np.int64]
"""`[C]` items per client."""
Holdings = NDArray[np.bool_]
"""`[C, n]` whether client c holds item i."""


def beta_sizes(num_clients: int, low: int, mean: int, high: int, concentration: float, rng: Generator) -> Sizes:
    """Sizes `[C]` in `[low, high]` that sum to exactly `num_clients * mean`; a low `concentration` spreads them.

    Sizes are `low + x (high - low)` with `x ~ Beta(m s, (1 - m) s)`, `m` the relative mean and `s` the
    concentration, so that their variance is `(high - low)^2 m (1 - m) / (s + 1)` before rounding.
    """
    share = float(np.clip((mean - low) / (high - low), 1e-6, 1 - 1e-6))
    spread = max(concentration, 2e-3)
    drawn = rng.beta(share * spread, (1 - share) * spread, size=num_clients)
    target = num_clients * mean
    wanted = low + drawn * (high - low)
    if wanted.sum() >= 1:  # less than one item in all cannot be scaled: every draw underflowed
        wanted *= target / wanted.sum()
    wanted = np.clip(wanted, low, high)
    return _to_sum(_rounded(wanted, target, low, high), target, low, high)


def _rounded(wanted: NDArray[np.float64], target: int, low: int, high: int) -> Sizes:
    """Largest remainders up, or smallest down, once each."""
    sizes = np.floor(wanted).astype(np.int64)
    by_remainder = np.argsort(-(wanted - sizes), kind="stable")
    missing = target - int(sizes.sum())
    chosen = by_remainder[:missing] if missing >= 0 else by_remainder[::-1][:-missing]
    sizes[chosen] += np.sign(missing)
    return np.clip(sizes, low, high)


def _to_sum(sizes: Sizes, target: int, low: int, high: int) -> Sizes:
    """Move sizes by one until they sum to `target`: the first that have room once, then round-robin."""
    sizes = sizes.copy()
    step = int(np.sign(target - sizes.sum()))
    limit = high if step > 0 else low
    with_room = np.flatnonzero(sizes != limit)
    sizes[with_room[: abs(target - int(sizes.sum()))]] += step
    for turn in range(abs(target - int(sizes.sum()))):
        with_room = np.flatnonzero(sizes != limit)
        sizes[with_room[turn % len(with_room)]] += step
    return sizes


def assign_with_overlap(num_items: int, sizes: Sizes, rng: Generator) -> Holdings:
    """Deal `num_items` items to clients with the given `sizes` `[C]`: exact sizes, even coverage, no duplicates.

    With `r = sum(sizes) / num_items`, an item goes to `floor(r)` or `ceil(r)` distinct clients, drawn in proportion
    to the room they have left. Clients that fill up early may cost the last items a copy, which is dealt again at
    random, so that sizes stay exact.
    """
    left = sizes.astype(np.int64)
    total = int(left.sum())
    held = np.zeros((num_items, len(sizes)), dtype=np.bool_)
    for item, wanted in enumerate(_copies(num_items, total, rng)):
        count = min(wanted, int(np.count_nonzero(left)))
        if count:
            clients = weighted_draw(left / total, count, rng)
            held[item][clients] = True
            left[clients] -= 1
            total -= count
    while left.any():
        item = rng.integers(0, num_items)
        client = rng.choice(np.flatnonzero(left))
        if not held[item, client]:
            held[item, client] = True
            left[client] -= 1
    return np.ascontiguousarray(held.T)


def _copies(num_items: int, total: int, rng: Generator) -> list[int]:
    copies = np.full(num_items, total // num_items)
    copies[rng.choice(num_items, total % num_items, replace=False)] += 1
    return copies.tolist()


def weighted_draw(chances: NDArray[np.float64], count: int, rng: Generator) -> NDArray[np.int64]:
    """`count` distinct positions with probabilities `chances` `[C]`, which it overwrites.

    Draw for draw the stream and the result of `rng.choice(C, count, replace=False, p=chances)`, without its checks,
    which take several times as long as the draw.
    """
    found = _inverse_cdf(chances, count, rng)
    while len(distinct := dict.fromkeys(found.tolist())) < count:
        found = np.fromiter(distinct, np.int64)
        chances[found] = 0
        found = np.concatenate([found, _inverse_cdf(chances, count - len(found), rng)])
    return found


def _inverse_cdf(chances: NDArray[np.float64], count: int, rng: Generator) -> NDArray[np.int64]:
    cumulative = chances.cumsum()
    cumulative /= cumulative[-1]
    return cumulative.searchsorted(rng.random(count), side="right")
