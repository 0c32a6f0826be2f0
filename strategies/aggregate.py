"""Weighted means of model arrays, one reply at a time."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

import numpy as np

from flwr_agent.arrays import BLOCK, NUM_THREADS
from flwr_agent.requests import Arrays

SPAN = 64 * BLOCK
"""Elements one task of the thread pool works through."""
BLEND = 4 * BLOCK
"""Elements blended at a time: threads that take turns with the interpreter's lock get on better with few long steps."""


class Aggregator(Protocol):
    """Takes the sound replies of a round one by one, in ascending client id, and gives what they make together."""

    def add(self, arrays: Mapping[str, np.ndarray], weight: float) -> None:
        """Take one reply; its arrays are read-only views that are gone afterwards."""

    def value(self) -> Arrays:
        """Arrays that the caller may change; called once, after the last `add`."""
        ...


class Mean:
    """The weighted mean of everything added so far: one fp32 accumulator, whatever the number of clients.

    West's update `m += (x - m) * w / W` (Comm. ACM 22(9), 1979) instead of a sum that is divided at the end: one array,
    or any number of equal ones, is its own mean bit for bit, which `n * x / n` is not from n = 3 on. Bits depend on the
    order of `add`, never on the number of threads.

    Example:
        >>> mean = Mean()
        >>> mean.add({"actor/w": np.float32([1, 2])}, weight=3)
        >>> mean.add({"actor/w": np.float32([5, 6])}, weight=1)
        >>> mean.value()
        {'actor/w': array([2., 3.], dtype=float32)}
    """

    def __init__(self) -> None:
        self._mean: Arrays = {}
        self._weight = 0.0

    def add(self, arrays: Mapping[str, np.ndarray], weight: float) -> None:
        """Fold in arrays of the names and shapes of the first ones; check them before, for a fold cannot be undone."""
        if weight <= 0:
            raise ValueError(f"weight {weight} must be positive")
        self._weight += weight
        share = np.float32(weight / self._weight)
        with ThreadPoolExecutor(NUM_THREADS) as pool:
            if not self._mean:
                copies = pool.map(lambda values: np.array(values, order="C"), arrays.values())
                self._mean = dict(zip(arrays, copies, strict=True))
                return
            parts = itertools.chain.from_iterable(spans(into, arrays[name]) for name, into in self._mean.items())
            list(pool.map(lambda span: _blend(span[0], span[1], share), parts))

    def value(self) -> Arrays:
        """Hand out the mean and forget it; the next `add` starts a new one."""
        mean, self._mean, self._weight = self._mean, {}, 0.0
        return mean


def spans(*arrays: np.ndarray) -> Iterator[tuple[np.ndarray, ...]]:
    """Equal parts of arrays of one shape in C order, as flat views; each is work for one thread."""
    return _cut(arrays, SPAN)


def blocks(*arrays: np.ndarray) -> Iterator[tuple[np.ndarray, ...]]:
    """Equal parts of arrays of one shape in C order, as flat views that fit in a core's cache."""
    return _cut(arrays, BLOCK)


def _cut(arrays: Sequence[np.ndarray], size: int) -> Iterator[tuple[np.ndarray, ...]]:
    flat = [values.reshape(-1) for values in arrays]
    for start in range(0, flat[0].size, size):
        yield tuple(values[start : start + size] for values in flat)


def _blend(into: np.ndarray, new: np.ndarray, share: np.float32) -> None:
    scratch = np.empty(min(BLEND, into.size), into.dtype)
    for block, other in _cut((into, new), BLEND):
        step = scratch[: block.size]
        np.subtract(other, block, out=step)
        step *= share
        block += step
