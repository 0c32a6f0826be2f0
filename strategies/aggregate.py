"""Weighted means of model arrays, one reply at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from flwr_agent.arrays import BLOCK, NUM_THREADS
from flwr_agent.requests import Arrays

SPAN = 16 * BLOCK
"""Elements one task of the thread pool works through."""


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
        if not self._mean:
            self._mean = {name: np.array(values, order="C") for name, values in arrays.items()}
            return
        share = np.float32(weight / self._weight)
        with ThreadPoolExecutor(NUM_THREADS) as pool:
            for _ in pool.map(lambda pair: _blend(pair[0], pair[1], share), _spans(self._mean, arrays)):
                pass

    def value(self) -> Arrays:
        """Hand out the mean and forget it; the next `add` starts a new one."""
        mean, self._mean, self._weight = self._mean, {}, 0.0
        return mean


def _spans(mean: Arrays, arrays: Mapping[str, np.ndarray]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    for name, values in mean.items():
        into, new = values.reshape(-1), arrays[name].reshape(-1)
        for start in range(0, into.size, SPAN):
            yield into[start : start + SPAN], new[start : start + SPAN]


def _blend(into: np.ndarray, new: np.ndarray, share: np.float32) -> None:
    scratch = np.empty(min(BLOCK, into.size), into.dtype)
    for start in range(0, into.size, BLOCK):
        block = into[start : start + BLOCK]
        step = scratch[: block.size]
        np.subtract(new[start : start + BLOCK], block, out=step)
        step *= share
        block += step
