"""Federated averaging (McMahan et al., AISTATS 2017)."""

from __future__ import annotations

from typing import Any

from flwr_agent.config import RunConfig
from flwr_agent.requests import Arrays, TrainReply
from strategies.base import RoundStrategy


class FedAvg(RoundStrategy):
    """The next model is the mean of the clients' models.

    Example:
        >>> FedAvg(total_clients=100, clients_per_round=2, seed=42).choose(1)
        [14, 81]
    """

    def __init__(self, *, weights: str = "uniform", **who: Any) -> None:
        """Weigh clients alike (`uniform`) or by their training rows (`examples`); `who` as in `RoundStrategy`."""
        super().__init__(**who)
        self.weights = weights

    @classmethod
    def options(cls, config: RunConfig) -> dict[str, Any]:
        """Constructor arguments of a run."""
        return super().options(config) | {"weights": config.federation.weights}

    def weight(self, reply: TrainReply) -> float:
        """One, or the reply's number of training rows."""
        return float(reply.num_examples) if self.weights == "examples" else 1.0

    def step(self, arrays: Arrays, mean: Arrays) -> Arrays:  # noqa: ARG002 - FedAvg forgets the old model
        """The mean itself."""
        return mean
