"""Federated averaging (McMahan et al., AISTATS 2017)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from flwr_agent.config import RunConfig
from flwr_agent.errors import ConfigError
from flwr_agent.requests import Arrays, TrainReply
from strategies.base import RoundStrategy

UNIFORM, EXAMPLES = "uniform", "examples"


class FedAvg(RoundStrategy):
    """The next model is the mean of the clients' models.

    Example:
        >>> FedAvg(total_clients=100, clients_per_round=2, seed=42).choose(1)
        [14, 81]
    """

    def __init__(self, *, weights: str | Sequence[float] = UNIFORM, **who: Any) -> None:
        """Weigh clients alike (`uniform`), by their training rows (`examples`), or each by a number of its own.

        Args:
            weights: one of the two words, or a positive number for each of the `total_clients` clients.
            who: as in `RoundStrategy`.

        Raises:
            ConfigError: neither.
        """
        super().__init__(**who)
        if weights not in (UNIFORM, EXAMPLES):
            weights = _numbers(weights, self.total_clients)
        if self.privacy is not None and weights != UNIFORM:
            fix = "with noise every client counts alike; use uniform, or set privacy.noise_multiplier=0"
            raise ConfigError("federation.weights", str(weights), fix)
        self.weights = weights

    @classmethod
    def options(cls, config: RunConfig) -> dict[str, Any]:
        """Constructor arguments of a run."""
        return super().options(config) | {"weights": config.federation.weights}

    def weight(self, reply: TrainReply) -> float:
        """One, the reply's number of training rows, or the client's own weight."""
        if self.weights == UNIFORM:
            return 1.0
        return float(reply.num_examples if self.weights == EXAMPLES else self.weights[reply.client_id])

    def step(self, arrays: Arrays, mean: Arrays) -> Arrays:  # noqa: ARG002 - FedAvg forgets the old model
        """The mean itself."""
        return mean


def _numbers(weights: str | Sequence[float], count: int) -> tuple[float, ...]:
    """Weights by client id, also from `3,1`."""
    try:
        found = tuple(float(word) for word in (weights.split(",") if isinstance(weights, str) else weights))
    except ValueError:
        found = ()
    if len(found) != count or not all(math.isfinite(weight) and weight > 0 for weight in found):
        numbers = f"{count} positive numbers with commas, one for each client"
        fix = (
            f"must be {UNIFORM}, {EXAMPLES}, or {numbers if count else 'numbers once federation.total_clients is set'}"
        )
        raise ConfigError("federation.weights", str(weights), fix)
    return found
