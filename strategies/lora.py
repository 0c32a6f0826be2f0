"""Strategies for LoRA adapters. The mean of products BA is no product of means; one lives with it, one avoids it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np

from flwr_agent.config import RunConfig
from flwr_agent.errors import ConfigError
from flwr_agent.policy import check_policy
from flwr_agent.requests import Arrays
from flwr_agent.wire import VALUE
from strategies.aggregate import Aggregator, Mean
from strategies.fedprox import FedProx

_A, _B = ".lora_A.", ".lora_B."
Taken = Sequence[tuple[float, Mapping[str, np.ndarray]]]
"""Weight and adapter of each client."""


class LoraFrozenA(FedProx):
    """FFA-LoRA (Sun et al., ICLR 2024): A is seeded and frozen, so the mean of the B is exactly the mean of the BA."""

    @classmethod
    def from_config(cls, config: RunConfig) -> Self:
        """The strategy of a run.

        Raises:
            ConfigError: the run has no adapters, or adapters of several ranks where A is shared.
        """
        check_policy(config)
        return super().from_config(config)


class LoraAverage(LoraFrozenA):
    """A and B are averaged apart (FedIT, Zhang et al., ICASSP 2024); each round says what that loses."""

    is_private = False

    def __init__(self, **options: Any) -> None:
        """Arguments as in `FedProx`.

        Raises:
            ConfigError: clients send differences, whose factors have no product.
        """
        super().__init__(**options)
        if self.payload != VALUE:
            fix = "products of factors need their values; use `value`, or strategy.name=lora_frozen_a"
            raise ConfigError("strategy.payload", self.payload, fix)
        self._factors = FactorMean()

    def aggregator(self) -> Aggregator:
        """A mean that also remembers the adapters of the round."""
        self._factors = FactorMean()
        return self._factors

    def measured(self) -> dict[str, float]:
        """`lora/averaging_error` of the round (see `averaging_error`)."""
        return {"lora/averaging_error": self._factors.error}


class FactorMean(Mean):
    """The mean of A and B apart; keeps the round's adapters until it is asked, and then says how far it is off."""

    def __init__(self) -> None:
        super().__init__()
        self.error = 0.0
        """`averaging_error` of the mean that `value` gave last."""
        self._taken: list[tuple[float, Arrays]] = []

    def add(self, arrays: Mapping[str, np.ndarray], weight: float) -> None:
        """Fold in a client's arrays; the adapters among them are copied."""
        super().add(arrays, weight)
        adapter = {name: np.array(values) for name, values in arrays.items() if _A in name or _B in name}
        self._taken.append((weight, adapter))

    def value(self) -> Arrays:
        """Hand out the mean and forget the round, but for its error."""
        mean, taken, self._taken = super().value(), self._taken, []
        self.error = averaging_error(mean, taken)
        return mean


def averaging_error(mean: Mapping[str, np.ndarray], taken: Taken) -> float:
    """Relative distance of the product of means from the mean of products, over all adapted modules.

    ||mean(BA) - mean(B) mean(A)|| / ||mean(BA)|| in the Frobenius norm; 0 where the mean of products is zero. A product
    of stacked factors B S A has the norm of R_b S R_a^T for the QR factors of B and A^T, so no matrix of a module's own
    size is ever made, and nothing cancels.

    Args:
        mean: the averaged factors.
        taken: weight and factors of each client, of the shapes of `mean`.
    """
    total = sum(weight for weight, _ in taken)
    lost = kept = 0.0
    for name_a in (name for name in mean if _A in name):
        name_b = name_a.replace(_A, _B)
        b = np.concatenate([*(client[name_b] for _, client in taken), mean[name_b]], axis=1, dtype=np.float64)
        a = np.concatenate([*(client[name_a] for _, client in taken), mean[name_a]], axis=0, dtype=np.float64)
        rank = len(mean[name_a])
        signs = np.repeat([*(weight / total for weight, _ in taken), -1.0], rank)
        r_b, r_a = (np.asarray(np.linalg.qr(factor, mode="r")) for factor in (b, a.T))
        lost += float(np.sum(((r_b * signs) @ r_a.T) ** 2))
        kept += float(np.sum(((r_b[:, :-rank] * signs[:-rank]) @ r_a[:, :-rank].T) ** 2))
    return (lost / kept) ** 0.5 if kept else 0.0
