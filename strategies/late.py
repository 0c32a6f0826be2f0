"""FedAvg that waits for nobody twice: what comes after its round's deadline counts in a later round, for less."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Message
from flwr.serverapp import Grid

from flwr_agent.config import RunConfig
from flwr_agent.requests import Arrays
from flwr_agent.wire import DELTA
from strategies.fedavg import FedAvg
from strategies.fold import Fold, Request


@dataclass(frozen=True, kw_only=True, slots=True)
class Pending:
    """A request whose round is over."""

    round: int
    request: Request
    base: Arrays
    """The model it carried."""


class LateFedAvg(FedAvg):
    """FedAvg in which a reply that is tau rounds late moves the model by `s(tau)` of its own movement.

    `w += sum_i w_i s(tau_i) (w_i - base_i) / sum_i w_i` over all accepted replies, with weights that are not discounted and
    `s(tau) = (1 + tau)^-power` (Xie et al., arXiv:1903.03934). A reply in time has tau 0, which is FedAvg. Replies later
    than `max_staleness` rounds are dropped, and a client counts once a round. Holds the models of the last
    `max_staleness` rounds. What is pending ends with the process: a resumed run asks anew.

    Example:
        >>> LateFedAvg(max_staleness=2, total_clients=100, clients_per_round=10).discount(1)
        0.7071067811865476
    """

    is_private = False
    knobs = (FedAvg.knobs - {"payload", "compression", "error_feedback"}) | {"max_staleness", "staleness_power"}

    def __init__(self, *, max_staleness: int = 2, staleness_power: float = 0.5, **options: Any) -> None:
        """Accept replies up to `max_staleness` rounds late; `options` as in `FedAvg`."""
        super().__init__(**options)
        self.max_staleness, self.staleness_power = max_staleness, staleness_power
        self._pending: list[Pending] = []
        self._grid: Grid | None = None

    @classmethod
    def options(cls, config: RunConfig) -> dict[str, Any]:
        """Constructor arguments of a run."""
        own = config.strategy
        return super().options(config) | {
            "max_staleness": own.max_staleness,
            "staleness_power": own.staleness_power,
        }

    def discount(self, staleness: int) -> float:
        """`s(tau)`."""
        return float((1 + staleness) ** -self.staleness_power)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> list[Message]:
        """As `RoundStrategy`; the requests of rounds that are too far back are given up."""
        self._grid = grid
        self._pending = [late for late in self._pending if server_round - late.round <= self.max_staleness]
        return super().configure_train(server_round, arrays, config, grid)

    def gather(self, server_round: int, fold: Fold, replies: Iterable[Message]) -> None:
        """Take the replies in time, then those of earlier rounds that have come meanwhile."""
        super().gather(server_round, fold, replies)
        for late in list(self._pending):
            for message in self._grid.pull_messages([late.request.message.metadata.message_id]) if self._grid else ():
                self._pending.remove(late)
                staleness = server_round - late.round
                base = None if self.payload == DELTA else late.base
                fold.take_late(late.request, message, base, staleness=staleness, share=self.discount(staleness))
        silent = [request for request in fold.requests if request.status is None]
        self._pending += [Pending(round=server_round, request=request, base=fold.base) for request in silent]
