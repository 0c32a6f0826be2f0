"""Weighted means of model arrays, one reply at a time."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

import numpy as np

from flwr_agent.arrays import BLOCK, NUM_THREADS, blank
from flwr_agent.requests import Arrays

SPAN = 64 * BLOCK
"""Elements one task of the thread pool works through."""
BLEND = 2 * BLOCK
"""Elements blended at a time: threads that take turns with the interpreter's lock get on better with few long steps."""


class Aggregator(Protocol):
    """Takes the sound replies of a round one by one, in ascending client id, and gives what they make together."""

    def add(self, arrays: Mapping[str, np.ndarray], weight: float) -> None:
        """Take one reply; its arrays are read-only views, alive for as long as they are kept."""

    def value(self) -> Arrays:
        """Arrays that the caller may change; called once, after the last `add`."""
        ...


class Mean:
    """The weighted mean of everything added so far: one fp32 accumulator and one reply, whatever the number of clients.

    West's update `m += (x - m) * w / W` (Comm. ACM 22(9), 1979) instead of a sum that is divided at the end: one array,
    or any number of equal ones, is its own mean bit for bit, which `n * x / n` is not from n = 3 on. Bits depend on the
    order of `add`, never on the number of threads. Every second reply waits for the next one, so that the accumulator
    passes through memory once for two of them.

    Example:
        >>> mean = Mean()
        >>> mean.add({"actor/w": np.float32([1, 2])}, weight=3)
        >>> mean.add({"actor/w": np.float32([5, 6])}, weight=1)
        >>> mean.value()["actor/w"].tolist()
        [2.0, 3.0]
    """

    def __init__(self) -> None:
        self._mean: Arrays = {}
        self._weight = 0.0
        self._waiting: list[tuple[Mapping[str, np.ndarray], np.float32 | None]] = []

    def add(self, arrays: Mapping[str, np.ndarray], weight: float) -> None:
        """Fold in arrays of the names and shapes of the first ones; check them before, for a fold cannot be undone."""
        if weight <= 0:
            raise ValueError(f"weight {weight} must be positive")
        share = np.float32(weight / (self._weight + weight)) if self._weight else None
        self._weight += weight
        self._waiting.append((arrays, share))
        if len(self._waiting) == 2:
            self._fold()

    def value(self) -> Arrays:
        """Hand out the mean and forget it; the next `add` starts a new one."""
        self._fold()
        mean, self._mean, self._weight = self._mean, {}, 0.0
        return mean

    def _fold(self) -> None:
        replies, self._waiting = self._waiting, []
        if not replies:
            return
        first, shares = replies[0][0], [share for _, share in replies]
        self._mean = self._mean or {name: blank(values.shape) for name, values in first.items()}
        with ThreadPoolExecutor(NUM_THREADS) as pool:
            parts = ((into, *(arrays[name] for arrays, _ in replies)) for name, into in self._mean.items())
            cut = itertools.chain.from_iterable(itertools.starmap(spans, parts))
            list(pool.map(lambda span: _blend(span[0], span[1:], shares), cut))


def spans(*arrays: np.ndarray) -> Iterator[tuple[np.ndarray, ...]]:
    """Equal parts of arrays of one shape in C order, as flat views; each is work for one thread."""
    return _cut(arrays, SPAN)


def blocks(*arrays: np.ndarray) -> Iterator[tuple[np.ndarray, ...]]:
    """Equal parts of arrays of one shape in C order, as flat views that fit in a core's cache."""
    return _cut(arrays, BLOCK)


def _cut(arrays: Sequence[np.ndarray], size: int) -> Iterator[tuple[np.ndarray, ...]]:
    flat = [np.asarray(values).reshape(-1) for values in arrays]
    for start in range(0, flat[0].size, size):
        yield tuple(values[start : start + size] for values in flat)


def _blend(into: np.ndarray, replies: Sequence[np.ndarray], shares: Sequence[np.float32 | None]) -> None:
    """Move a part of the mean towards each reply by its share; the first of all, without one, is the mean."""
    scratch = np.empty(min(BLEND, into.size), into.dtype)
    for block, *others in _cut((into, *replies), BLEND):
        step = scratch[: block.size]
        for other, share in zip(others, shares, strict=True):
            if share is None:
                block[...] = other
                continue
            np.subtract(other, block, out=step)
            step *= share
            block += step
