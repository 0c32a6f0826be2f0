"""Server optimizers: the mean update of the clients is a gradient, and the server takes an optimizer's step along it.

FedAvgM is Hsu et al. (arXiv:1909.06335); FedAdagrad, FedAdam and FedYogi are Algorithm 2 of Reddi et al. (ICLR 2021),
without bias correction and with second moments that start at tau squared.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

import numpy as np

from flwr_agent.arrays import DTYPE, NUM_THREADS
from flwr_agent.config import RunConfig
from flwr_agent.requests import Arrays
from strategies.aggregate import blocks, spans
from strategies.fedavg import FedAvg


class ServerOptimizer(FedAvg):
    """FedAvg whose mean update `mean - w` passes through an optimizer that keeps moments of the model's size.

    A subclass names its moments, says where they start, and turns a block of the update into a block of the step.

    Example:
        >>> strategy = FedAdam(server_lr=1e-3, total_clients=100, clients_per_round=10)
        >>> strategy.load_state(saved)  # what `state_arrays()` of the same strategy has given
    """

    moments: ClassVar[tuple[str, ...]]
    """Names of the moments, in the order `direction` takes them."""
    knobs = FedAvg.knobs | {"server_lr", "momentum"}

    def __init__(self, *, server_lr: float, momentum: float = 0.9, **options: Any) -> None:
        """Step by `server_lr` along a moving average of the updates that keeps `momentum` of itself."""
        super().__init__(**options)
        self.server_lr, self.momentum = np.float32(server_lr), np.float32(momentum)
        self._moments: Arrays = {}

    @classmethod
    def options(cls, config: RunConfig) -> dict[str, Any]:
        """Constructor arguments of a run."""
        own = config.strategy
        return super().options(config) | {"server_lr": own.server_lr or 1.0, "momentum": own.momentum}

    @abstractmethod
    def direction(self, update: np.ndarray, *moments: np.ndarray) -> np.ndarray:
        """What `server_lr` multiplies, for a block of the update `[n]`; the block's moments `[n]` are moved in place."""

    def start_of(self, moment: str) -> float:  # noqa: ARG002 - a subclass has several
        """Value of a moment before the first round."""
        return 0.0

    def step(self, arrays: Arrays, mean: Arrays) -> Arrays:
        """Turn the mean into the next model, in place."""
        if not self._moments:
            self._moments = {
                f"{moment}/{name}": np.full(values.shape, self.start_of(moment), DTYPE)
                for moment in self.moments
                for name, values in arrays.items()
            }
        with ThreadPoolExecutor(NUM_THREADS) as pool:
            for name, values in arrays.items():
                moved = [self._moments[f"{moment}/{name}"] for moment in self.moments]
                list(pool.map(lambda span: self._step_span(*span), spans(mean[name], values, *moved)))
        return mean

    def _step_span(self, *span: np.ndarray) -> None:
        for new, old, *moments in blocks(*span):
            np.subtract(new, old, out=new)
            np.add(old, self.server_lr * self.direction(new, *moments), out=new)

    def state_arrays(self) -> Arrays:
        """The moments, as `moment/name`, and what every strategy keeps."""
        return super().state_arrays() | self._moments

    def load_state(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Go on from moments that `state_arrays` has given.

        Raises:
            ValueError: they are another optimizer's.
        """
        own = {name: values for name, values in arrays.items() if name.partition("/")[0] in self.moments}
        super().load_state({name: values for name, values in arrays.items() if name not in own})
        self._moments = {name: np.array(values, DTYPE) for name, values in own.items()}


class FedAvgM(ServerOptimizer):
    """Heavy-ball momentum: `m = momentum m + update; w += server_lr m`; with momentum 0 and step 1 it is FedAvg."""

    moments = ("first",)

    def direction(self, update: np.ndarray, *moments: np.ndarray) -> np.ndarray:
        """The momentum."""
        (first,) = moments
        first *= self.momentum
        first += update
        return first


class Adaptive(ServerOptimizer):
    """`m = momentum m + (1 - momentum) update; w += server_lr m / (sqrt(v) + tau)`, where a subclass moves `v`.

    Updates far below `tau` are scaled by `server_lr / tau` alone, so that with `server_lr = tau` (the default) small
    updates are averaged as in FedAvgM and large ones are bounded as in Adam.
    """

    moments = ("first", "second")
    knobs = ServerOptimizer.knobs | {"tau"}

    def __init__(self, *, server_lr: float | None = None, tau: float = 1e-3, **options: Any) -> None:
        """Bound the step with `tau`, which is also the default of `server_lr`."""
        super().__init__(server_lr=tau if server_lr is None else server_lr, **options)
        self.tau = np.float32(tau)

    @classmethod
    def options(cls, config: RunConfig) -> dict[str, Any]:
        """Constructor arguments of a run."""
        own = config.strategy
        return super().options(config) | {"server_lr": own.server_lr or None, "tau": own.tau}

    def start_of(self, moment: str) -> float:
        """Second moments start at the least value the paper allows."""
        return float(self.tau) ** 2 if moment == "second" else 0.0

    @abstractmethod
    def accumulate(self, second: np.ndarray, square: np.ndarray) -> None:
        """Move a block of second moments `[n]` in place by the squared update `[n]`."""

    def direction(self, update: np.ndarray, *moments: np.ndarray) -> np.ndarray:
        """The first moment over the root of the second."""
        first, second = moments
        first *= self.momentum
        first += (1 - self.momentum) * update
        self.accumulate(second, update * update)
        return first / (np.sqrt(second) + self.tau)


class FedAdagrad(Adaptive):
    """`v += update^2`."""

    def accumulate(self, second: np.ndarray, square: np.ndarray) -> None:
        """Sum the squares."""
        second += square


class FedAdam(Adaptive):
    """`v = beta2 v + (1 - beta2) update^2`."""

    knobs = Adaptive.knobs | {"beta2"}

    def __init__(self, *, beta2: float = 0.99, **options: Any) -> None:
        """Keep `beta2` of the second moment each round."""
        super().__init__(**options)
        self.beta2 = np.float32(beta2)

    @classmethod
    def options(cls, config: RunConfig) -> dict[str, Any]:
        """Constructor arguments of a run."""
        return super().options(config) | {"beta2": config.strategy.beta2}

    def accumulate(self, second: np.ndarray, square: np.ndarray) -> None:
        """Average the squares."""
        second *= self.beta2
        second += (1 - self.beta2) * square


class FedYogi(FedAdam):
    """`v -= (1 - beta2) update^2 sign(v - update^2)`: as FedAdam, but `v` falls no faster than it rises."""

    def accumulate(self, second: np.ndarray, square: np.ndarray) -> None:
        """Move towards the squares by a step that does not depend on the distance."""
        second -= (1 - self.beta2) * square * np.sign(second - square)
