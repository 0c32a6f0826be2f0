"""FedProx (Li et al., MLSys 2020): clients are pulled back to the model they started from."""

from __future__ import annotations

from typing import Any

from flwr.app import ConfigRecord

from flwr_agent.config import RunConfig
from flwr_agent.protocol import PROX_MU
from strategies.fedavg import FedAvg


class FedProx(FedAvg):
    """FedAvg whose clients add `prox_mu (w - w_t)` to their gradients; with 0 it is FedAvg."""

    knobs = FedAvg.knobs | {"prox_mu"}

    def __init__(self, *, prox_mu: float, **options: Any) -> None:
        """Carry `prox_mu` to the clients; `options` as in `FedAvg`."""
        super().__init__(**options)
        self.prox_mu = prox_mu

    @classmethod
    def options(cls, config: RunConfig) -> dict[str, Any]:
        """Constructor arguments of a run."""
        return super().options(config) | {"prox_mu": config.strategy.prox_mu}

    def train_config(self, config: ConfigRecord) -> ConfigRecord:
        """The run's record with the coefficient under Flower's own key."""
        return ConfigRecord({**config, PROX_MU: self.prox_mu})
