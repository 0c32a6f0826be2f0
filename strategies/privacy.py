"""Central differential privacy: a mean of clipped updates with Gaussian noise (McMahan et al., ICLR 2018).

Promised for the weights alone: metrics, counts of rows and who answered leave the server as they are.
"""

from __future__ import annotations

import hashlib
import hmac
import math
import secrets
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np

from flwr_agent.accountant import epsilon
from flwr_agent.arrays import NUM_THREADS, replace
from flwr_agent.config import RunConfig
from flwr_agent.errors import BudgetError, ResumeError
from flwr_agent.requests import Arrays
from strategies.aggregate import blocks, spans

KEY_FILE = "privacy.key"
"""In the run folder: the secret that the noise is drawn from. Clients must never see it; without it no round resumes."""
SECRET_BYTES = 32
_FALLBACK = secrets.token_bytes(SECRET_BYTES)
"""Secret of strategies made without one: new in every process."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CentralDP:
    """How updates are clipped, how much noise their mean gets, and what may be spent.

    Example:
        >>> privacy = CentralDP(clip=1.0, noise_multiplier=1.0)
        >>> FedAvg(total_clients=100, clients_per_round=50, privacy=privacy)
    """

    clip: float
    """Largest Euclidean norm of one client's whole update; longer ones are scaled down to it."""
    noise_multiplier: float
    """Standard deviation of the noise on the sum, in units of `clip`."""
    delta: float = 1e-5
    """At which the spend is stated; well below 1 / clients."""
    budget: float = math.inf
    """Epsilon that no round may exceed."""
    key: bytes | Path = b""
    """Secret of the noise, or the file that holds it and is made on first use."""

    @classmethod
    def from_config(cls, config: RunConfig) -> Self | None:
        """What a run asks for; None without noise."""
        own = config.privacy
        if not own.noise_multiplier:
            return None
        return cls(
            clip=own.clip,
            noise_multiplier=own.noise_multiplier,
            delta=own.delta,
            budget=own.budget or math.inf,
            key=Path(config.output_dir) / KEY_FILE,
        )

    def spent(self, rounds: int) -> dict[str, float]:
        """Epsilon and delta of a client that took part in all of the first `rounds` rounds."""
        return {"epsilon": epsilon(self.noise_multiplier, rounds, self.delta), "delta": self.delta}

    def check_budget(self, round_: int) -> None:
        """Refuse a round that would exceed the budget.

        Raises:
            BudgetError: says what has been spent and what the round would cost.
        """
        after = self.spent(round_)["epsilon"]
        if after > self.budget:
            raise BudgetError(
                f"round {round_} would spend epsilon={after:.3g} at delta={self.delta:g}, beyond "
                f"privacy.budget={self.budget:g}; the model of round {round_ - 1} "
                f"(epsilon={self.spent(round_ - 1)['epsilon']:.3g}) is the last one unless the budget is raised"
            )

    def check_key(self, round_: int) -> None:
        """Refuse a round after the first whose noise would come from another secret.

        Raises:
            ResumeError: the file of the secret is gone.
        """
        if round_ > 1 and isinstance(self.key, Path) and not self.key.exists():
            raise ResumeError(
                f"{self.key} is missing, so a round run again would have other noise; restore it, or set fresh=true to "
                "archive the run"
            )

    def add_noise(self, mean: Arrays, *, num_clients: int, round_: int, accepted: Sequence[int]) -> None:
        """Add the round's noise to a mean over `num_clients`, in place.

        The noise is a function of the secret, the round and who is in the mean: a round that is run again with the
        same clients releases the same sum, and with others an independent one.
        """
        sigma = self.noise_multiplier * self.clip / num_clients
        secret = _read_or_make(self.key) if isinstance(self.key, Path) else self.key or _FALLBACK
        round_key = f"{round_}\0{sorted(accepted)}"

        def work(name: str) -> None:
            seed = hmac.digest(secret, f"{round_key}\0{name}".encode(), hashlib.sha256)
            draw = np.random.Generator(np.random.Philox(key=int.from_bytes(seed[:16], "big")))
            for (block,) in blocks(mean[name]):
                block += sigma * draw.standard_normal(block.size)

        with ThreadPoolExecutor(NUM_THREADS) as pool:
            list(pool.map(work, mean))


class ClippedMean:
    """The mean over a fixed number of clients of updates clipped to a norm; clients that are absent count as zero.

    Example:
        >>> mean = ClippedMean(clip=1.0, num_clients=2)
        >>> mean.add({"w": np.float32([3, 4])}, weight=1.0)
        >>> mean.value()
        {'w': array([0.3, 0.4], dtype=float32)}
    """

    def __init__(self, *, clip: float, num_clients: int, base: Mapping[str, np.ndarray] | None = None) -> None:
        """Take updates, or with a `base` the models that clients have made of it."""
        self._clip, self._num_clients, self._base = clip, num_clients, base
        self._sum: Arrays = {}

    def add(self, arrays: Mapping[str, np.ndarray], weight: float) -> None:  # noqa: ARG002 - all count alike
        """Clip and add one reply."""
        if not self._sum:
            self._sum = {name: np.zeros(values.shape, np.float32) for name, values in arrays.items()}
        with ThreadPoolExecutor(NUM_THREADS) as pool:
            squares = pool.map(lambda span: _square(span), self._spans(arrays))
            norm = math.sqrt(math.fsum(squares))
            share = np.float32(min(1.0, self._clip / norm) / self._num_clients) if norm else np.float32(0)
            list(pool.map(lambda span: _add(share, *span), self._spans(arrays)))

    def value(self) -> Arrays:
        """The mean."""
        found, self._sum = self._sum, {}
        return found

    def _spans(self, arrays: Mapping[str, np.ndarray]) -> Iterator[tuple[np.ndarray, ...]]:
        for name, into in self._sum.items():
            base = [] if self._base is None else [self._base[name]]
            yield from spans(into, arrays[name], *base)


def _updates(*span: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Blocks of the sum with those of the update."""
    for into, new, *base in blocks(*span):
        yield into, new - base[0] if base else new


def _square(span: Sequence[np.ndarray]) -> float:
    total = 0.0
    for _, update in _updates(*span):
        exact = update.astype(np.float64)
        total += float(exact @ exact)
    return total


def _add(share: np.float32, *span: np.ndarray) -> None:
    for into, update in _updates(*span):
        into += share * update


def _read_or_make(path: Path) -> bytes:
    """The secret in a file that only its owner can read."""
    if not path.exists():
        tmp = path.with_name(path.name + ".tmp")
        tmp.touch(mode=0o600)
        tmp.write_bytes(secrets.token_bytes(SECRET_BYTES))
        replace(tmp, path)
    secret = path.read_bytes()
    if len(secret) != SECRET_BYTES:
        raise ResumeError(f"{path} is damaged; restore it, or set fresh=true to archive the run")
    return secret
