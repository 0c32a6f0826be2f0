"""One round's replies: judged, folded into a mean, and accounted for by client."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from flwr.app import Message

from flwr_agent import protocol
from flwr_agent.arrays import check_like
from flwr_agent.errors import ProtocolError
from flwr_agent.requests import Arrays, TrainReply
from strategies.aggregate import Aggregator
from strategies.rounds import ClientOutcome, Status

logger = logging.getLogger("flwr.agent")


class Fold:
    """Takes replies in any number and state; only whole, finite, asked-for ones reach the mean, each client once."""

    def __init__(
        self,
        round_: int,
        asked: Sequence[Message],
        base: Arrays,
        *,
        into: Aggregator,
        weigh: Callable[[TrainReply], float],
        tell: Callable[[ClientOutcome], None],
    ) -> None:
        self.base = base
        """The model the clients started from; replies must have its names and shapes."""
        self.accepted: list[int] = []
        """Clients in the mean, in the order they were taken."""
        self.failures: list[ClientOutcome] = []
        """Clients that are not."""
        self.received_bytes = 0
        """Array bytes of all replies."""
        self._round, self._asked, self._weigh, self._tell = round_, asked, weigh, tell
        self._into, self._metrics = into, []
        self._started = time.monotonic()

    def in_client_order(self, replies: Iterable[Message]) -> Iterable[Message]:
        """Replies that are all here already by ascending client id, so that bits do not depend on arrival."""
        if not isinstance(replies, Sequence):
            return replies
        order = {message.metadata.message_id: i for i, message in enumerate(self._asked)}
        return sorted(replies, key=lambda reply: order.get(reply.metadata.reply_to_message_id, len(order)))

    def take(self, message: Message) -> None:
        """Judge one message and fold it if it is sound."""
        asked = {m.metadata.message_id: m for m in self._asked}.get(message.metadata.reply_to_message_id)
        if asked is None:
            logger.warning("ignored a message that answers no request of round %d", self._round)
            return
        client_id = protocol.client_of(asked.content)
        if client_id in self.accepted:
            self._end(asked, Status.DUPLICATE, "answered before")
        elif message.has_error():
            self._end(asked, Status.FAILED, _one_line(message.error.reason or f"error code {message.error.code}"))
        else:
            self._take_content(asked, message)

    def _take_content(self, asked: Message, message: Message) -> None:
        self.received_bytes += (payload_bytes := protocol.payload_bytes(message.content))
        try:
            reply, weight = self._sound(message, asked)
        except ProtocolError as error:
            self._end(asked, Status.REJECTED, str(error), payload_bytes=payload_bytes)
            return
        self._into.add(reply.arrays, weight)
        self._metrics.append(reply.metrics)
        self._end(
            asked,
            Status.ACCEPTED,
            "",
            payload_bytes=payload_bytes,
            num_examples=reply.num_examples,
            metrics=reply.metrics,
        )

    def _sound(self, message: Message, asked: Message) -> tuple[TrainReply, float]:
        reply = protocol.train_reply(message.content, asked.content)
        check_like(reply.arrays, self.base)
        weight = self._weigh(reply)
        if weight <= 0:
            raise ProtocolError(f"weight {weight:g}: the client trained on no rows")
        return reply, weight

    def close(self) -> None:
        """Account for every client that has said nothing."""
        heard = {*self.accepted, *(outcome.client_id for outcome in self.failures)}
        for message in self._asked:
            if protocol.client_of(message.content) not in heard:
                self._end(message, Status.MISSING, "no reply before the deadline")

    def value(self) -> Arrays:
        """What the accepted replies make together; callable once."""
        return self._into.value()

    def mean_metrics(self) -> dict[str, float]:
        """Unweighted mean of each metric over the accepted clients with a finite value of it."""
        names = sorted({name for metrics in self._metrics for name in metrics})
        values = {name: [m[name] for m in self._metrics if math.isfinite(m.get(name, math.nan))] for name in names}
        return {name: math.fsum(found) / len(found) for name, found in values.items() if found}

    def unreachable(self, client_id: int, reason: str) -> None:
        """Account for a chosen client that could not be asked."""
        self._add(ClientOutcome(round=self._round, client_id=client_id, status=Status.UNREACHABLE, reason=reason))

    def _end(self, asked: Message, status: Status, reason: str, **facts: Any) -> None:
        self._add(
            ClientOutcome(
                round=self._round,
                client_id=protocol.client_of(asked.content),
                status=status,
                reason=reason,
                node_id=asked.metadata.dst_node_id,
                seconds=time.monotonic() - self._started,
                **facts,
            )
        )

    def _add(self, outcome: ClientOutcome) -> None:
        if outcome.status is Status.ACCEPTED:
            self.accepted.append(outcome.client_id)
        elif outcome.status is not Status.DUPLICATE:
            self.failures.append(outcome)
            logger.warning("round %d: client %d %s: %s", self._round, outcome.client_id, outcome.status, outcome.reason)
        self._tell(outcome)


def _one_line(text: str) -> str:
    return " ".join(text.split())
