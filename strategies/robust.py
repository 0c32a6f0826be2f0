"""Rules that a minority of wrong clients cannot move at will: median, trimmed mean and Krum.

They need every reply of a round at once, so replies wait in files (`Spill`) and are worked through by blocks of
coordinates: memory for one model and a few blocks, disk for one model a client. All clients count alike.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from flwr_agent.arrays import NUM_THREADS
from flwr_agent.config import RunConfig
from flwr_agent.errors import ConfigError
from flwr_agent.requests import Arrays, TrainReply
from strategies.aggregate import Aggregator, Mean, blocks, spans
from strategies.base import RoundStrategy
from strategies.spill import Spill

FEWEST = 3
"""Replies below which one wrong client cannot be told from a right one."""


class Robust(RoundStrategy):
    """A strategy that makes the next model of all replies together, and accepts no round with too few of them."""

    rule: str
    """The name by which messages call it."""
    is_private = False

    def __init__(self, *, need: int = FEWEST, **who: Any) -> None:
        """Ask for at least `need` usable replies a round; `who` as in `RoundStrategy`.

        Raises:
            ConfigError: fewer clients are asked than that.
        """
        super().__init__(**who)
        if self.clients_per_round < need:
            fix = f"{self.rule} with these settings needs at least {need} clients a round"
            raise ConfigError("federation.clients_per_round", self.clients_per_round, fix)
        self.min_clients = max(self.min_clients, need)

    @classmethod
    def options(cls, config: RunConfig) -> dict[str, Any]:
        """Constructor arguments of a run."""
        if config.federation.weights != "uniform":
            fix = f"{cls.rule} counts all clients alike; use uniform"
            raise ConfigError("federation.weights", config.federation.weights, fix)
        return super().options(config)

    @abstractmethod
    def combine(self, replies: Sequence[np.ndarray]) -> np.ndarray:
        """The next model `[P]` from one flat reply `[P]` a client, in the order of client ids."""

    def aggregator(self) -> Aggregator:
        """Files on disk."""
        return Spill(self.combine)

    def weight(self, reply: TrainReply) -> float:  # noqa: ARG002 - all count alike
        """One."""
        return 1.0

    def step(self, arrays: Arrays, mean: Arrays) -> Arrays:  # noqa: ARG002 - the old model is forgotten
        """What was combined."""
        return mean


class FedMedian(Robust):
    """Coordinate-wise median (Yin et al., ICML 2018): right while fewer than half of the replies are wrong."""

    rule = "fedmedian"

    def combine(self, replies: Sequence[np.ndarray]) -> np.ndarray:
        """The median of every coordinate; the mean of the middle two of an even number."""
        return _by_blocks(replies, lambda stacked: np.median(stacked, axis=0))


class FedTrimmedAvg(Robust):
    """Coordinate-wise trimmed mean (Yin et al., ICML 2018): drops a share of the replies at each end, averages the rest."""

    rule = "fedtrimmedavg"
    knobs = Robust.knobs | {"trim"}

    def __init__(self, *, trim: float = 0.2, **who: Any) -> None:
        """Drop `floor(trim * replies)` of the largest and as many of the smallest values of every coordinate."""
        super().__init__(need=max(FEWEST, math.ceil(1 / trim)), **who)
        self.trim = trim

    @classmethod
    def options(cls, config: RunConfig) -> dict[str, Any]:
        """Constructor arguments of a run."""
        return super().options(config) | {"trim": config.strategy.trim}

    def combine(self, replies: Sequence[np.ndarray]) -> np.ndarray:
        """The trimmed mean of every coordinate."""
        cut = int(self.trim * len(replies))
        kept = slice(cut, len(replies) - cut)
        return _by_blocks(replies, lambda stacked: np.sort(stacked, axis=0)[kept].mean(axis=0, dtype=np.float64))


class Krum(Robust):
    """Krum and Multi-Krum (Blanchard et al., NeurIPS 2017): keep the replies that lie closest to their neighbours.

    A reply's score is the sum of its squared distances to its `M - f - 2` nearest ones of `M` replies, `f` of which may
    be wrong; the mean of the `keep` lowest is the next model. With `keep=1` that is one client's reply, bit for bit.
    """

    rule = "krum"
    knobs = Robust.knobs | {"byzantine", "keep"}

    def __init__(self, *, byzantine: int = 0, keep: int = 1, **who: Any) -> None:
        """Stand `byzantine` wrong clients; `M >= 2 byzantine + 3` replies are needed, and `M >= byzantine + 2 + keep`."""
        super().__init__(need=max(2 * byzantine + 3, byzantine + 2 + keep), **who)
        self.byzantine, self.keep = byzantine, keep

    @classmethod
    def options(cls, config: RunConfig) -> dict[str, Any]:
        """Constructor arguments of a run."""
        return super().options(config) | {"byzantine": config.strategy.byzantine, "keep": config.strategy.keep}

    def combine(self, replies: Sequence[np.ndarray]) -> np.ndarray:
        """The mean of the replies with the lowest scores; of equal ones the lower client ids."""
        apart = np.sort(_squared_distances(replies), axis=1)
        scores = apart[:, 1 : len(replies) - self.byzantine - 1].sum(axis=1)
        mean = Mean()
        for i in sorted(np.argsort(scores, kind="stable")[: self.keep]):
            mean.add({self.rule: replies[i]}, 1.0)
        return mean.value()[self.rule]


def _by_blocks(replies: Sequence[np.ndarray], rule: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """Apply `rule` (`[M, n]` -> `[n]`) to every block of coordinates."""
    result = np.empty_like(replies[0])

    def work(span: tuple[np.ndarray, ...]) -> None:
        for into, *columns in blocks(*span):
            into[:] = rule(np.stack(columns))

    with ThreadPoolExecutor(NUM_THREADS) as pool:
        list(pool.map(work, spans(result, *replies)))
    return result


def _squared_distances(replies: Sequence[np.ndarray]) -> np.ndarray:
    """`[M, M]`, summed in double precision from differences, which a far outlier cannot blur."""

    def work(span: tuple[np.ndarray, ...]) -> np.ndarray:
        found = np.zeros((len(replies), len(replies)))
        for columns in blocks(*span):
            stacked = np.stack(columns, dtype=np.float64)
            for i, row in enumerate(stacked):
                step = stacked[i + 1 :] - row
                found[i, i + 1 :] += np.einsum("mn,mn->m", step, step)
        return found

    with ThreadPoolExecutor(NUM_THREADS) as pool:
        upper = sum(pool.map(work, spans(*replies)), np.zeros((len(replies), len(replies))))
    return upper + upper.T
