"""One round's replies: judged, folded into a mean, and accounted for by client."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from flwr.app import Message

from flwr_agent import protocol
from flwr_agent.arrays import check_like
from flwr_agent.errors import ProtocolError
from flwr_agent.requests import Arrays, TrainReply
from strategies.aggregate import Aggregator, Mean
from strategies.rounds import ClientOutcome, Status
from strategies.spool import Spool

UPDATE_NORM = "update_norm"
"""Metric by which a client says how far it has moved the policy."""
logger = logging.getLogger("flwr.agent")


@dataclass
class Request:
    """One request of the round."""

    message: Message
    client_id: int
    attempt: int
    """Which request to this client, counted from 1."""
    status: Status | None = None
    """How it ended; None while it may still be answered."""

    @property
    def is_lost(self) -> bool:
        """Whether the client would have to be asked again."""
        return self.status in (Status.FAILED, Status.REJECTED)


class Fold:
    """Takes replies in any number and state; only whole, finite, asked-for ones reach the mean, each client once."""

    def __init__(
        self,
        round_: int,
        base: Arrays,
        *,
        into: Aggregator,
        weigh: Callable[[TrainReply], float],
        tell: Callable[[ClientOutcome], None],
        is_race: bool = False,
    ) -> None:
        """Open a round; `is_race` if replies come in no order, so that each waits on disk for its turn in the mean."""
        self.base = base
        """The model the clients started from; replies must have its names and shapes."""
        self.accepted: list[int] = []
        """Clients in the mean, in the order they were taken."""
        self.failures: list[ClientOutcome] = []
        """Requests that ended otherwise."""
        self.received_bytes = 0
        """Array bytes of all replies."""
        self.lengths: list[float] = []
        """Length of each accepted update by its client's word; NaN where that is not known of what was folded."""
        self.weights: list[float] = []
        """Weight of each accepted reply."""
        self._requests: list[Request] = []
        self._round, self._weigh, self._tell = round_, weigh, tell
        self._into, self._metrics = into, []
        self._spool = Spool() if is_race else None
        self._started = time.monotonic()

    def ask(self, message: Message) -> Request:
        """Expect a reply to this message, which has not been sent yet."""
        client_id = protocol.client_of(message.content)
        attempt = 1 + sum(request.client_id == client_id for request in self._requests)
        self._requests.append(request := Request(message, client_id, attempt))
        return request

    @property
    def is_race(self) -> bool:
        """Whether the first usable replies count."""
        return self._spool is not None

    @property
    def is_mean(self) -> bool:
        """Whether replies are averaged as they are."""
        return type(self._into) is Mean

    @property
    def requests(self) -> Sequence[Request]:
        """Everything asked so far, in the order of the fold."""
        return self._requests

    def in_client_order(self, replies: Iterable[Message]) -> Iterable[Message]:
        """Replies that are all here already by ascending client id, so that bits do not depend on arrival."""
        if not isinstance(replies, Sequence):
            return replies
        order = {request.message.metadata.message_id: i for i, request in enumerate(self._requests)}
        return sorted(replies, key=lambda reply: order.get(reply.metadata.reply_to_message_id, len(order)))

    def take(self, message: Message) -> None:
        """Judge one message and fold it if it is sound."""
        asked = {r.message.metadata.message_id: r for r in self._requests}.get(message.metadata.reply_to_message_id)
        if asked is None:
            logger.warning("ignored a message that answers no request of round %d", self._round)
        elif asked.client_id in self.accepted:
            self._end(asked, Status.DUPLICATE, "answered before")
        elif message.has_error():
            self._end(asked, Status.FAILED, _one_line(message.error.reason or f"error code {message.error.code}"))
        else:
            self._take_content(asked, message)

    def take_late(self, asked: Request, message: Message, base: Arrays | None, *, staleness: int, share: float) -> None:
        """Judge a reply to a request of an earlier round, and fold `share` of how it moved its model.

        `base` is the model it started from; None where replies are movements themselves.
        """
        if asked.client_id in self.accepted:
            self._end(asked, Status.DUPLICATE, f"{staleness} rounds late, and answered in this one")
        elif message.has_error():
            self._end(asked, Status.FAILED, _one_line(message.error.reason or f"error code {message.error.code}"))
        else:
            factor = np.float32(share)

            def move(arrays: Arrays) -> Arrays:
                if base is None:
                    return {name: factor * values for name, values in arrays.items()}
                return {name: self.base[name] + factor * (values - base[name]) for name, values in arrays.items()}

            self._take_content(asked, message, note=f"{staleness} rounds late", move=move)

    def _take_content(
        self, asked: Request, message: Message, *, note: str = "", move: Callable[[Arrays], Arrays] = lambda a: a
    ) -> None:
        self.received_bytes += (payload_bytes := protocol.payload_bytes(message.content))
        try:
            reply, weight = self._sound(message, asked.message)
        except ProtocolError as error:
            self._end(asked, Status.REJECTED, str(error), payload_bytes=payload_bytes)
            return
        if self._spool is None:
            self._into.add(move(reply.arrays), weight)
        else:
            self._spool.put(asked.client_id, move(reply.arrays), weight)
        self._metrics.append(reply.metrics)
        self.lengths.append(math.nan if note else reply.metrics.get(UPDATE_NORM, math.nan))
        self.weights.append(weight)
        self._end(
            asked,
            Status.ACCEPTED,
            note,
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

    def close(self, wanted: int) -> None:
        """Account for every client that has said nothing; `wanted` replies are all that the round needs."""
        for request in self._requests:
            if request.status is None and len(self.accepted) >= wanted:
                self._end(request, Status.SPARE, "the round had its replies")
            elif request.status is None:
                self._end(request, Status.MISSING, "no reply before the deadline")
        if self._spool is not None:
            self.accepted.sort()
            for _, arrays, weight in self._spool.drain():
                self._into.add(arrays, weight)

    def value(self) -> Arrays:
        """What the accepted replies make together; callable once."""
        return self._into.value()

    def mean_metrics(self) -> dict[str, float]:
        """Unweighted mean of each metric over the accepted clients with a finite value of it, and the lowest success."""
        names = sorted({name for metrics in self._metrics for name in metrics})
        values = {name: [m[name] for m in self._metrics if math.isfinite(m.get(name, math.nan))] for name in names}
        worst = {"worst_client/success": min(values["success"])} if values.get("success") else {}
        return {name: math.fsum(found) / len(found) for name, found in values.items() if found} | worst

    def unreachable(self, client_id: int, reason: str) -> None:
        """Account for a chosen client that could not be asked."""
        self._add(ClientOutcome(round=self._round, client_id=client_id, status=Status.UNREACHABLE, reason=reason))

    def refused(self, request: Request) -> None:
        """Account for a request that the transport did not take."""
        self._end(request, Status.FAILED, f"the transport takes no message for node {_node(request)}")

    def why_short(self) -> str:
        """One line on the clients that are not in the mean."""
        last = {outcome.client_id: outcome for outcome in self.failures if outcome.client_id not in self.accepted}
        return "; ".join(f"client {o.client_id} {o.status}: {o.reason}" for o in last.values())

    def _end(self, asked: Request, status: Status, reason: str, **facts: Any) -> None:
        if status is not Status.DUPLICATE:
            asked.status = status
        self._add(
            ClientOutcome(
                round=self._round,
                client_id=asked.client_id,
                status=status,
                attempt=asked.attempt,
                reason=reason,
                node_id=_node(asked),
                seconds=time.monotonic() - self._started,
                **facts,
            )
        )

    def _add(self, outcome: ClientOutcome) -> None:
        if outcome.status is Status.ACCEPTED:
            self.accepted.append(outcome.client_id)
        elif outcome.status not in (Status.DUPLICATE, Status.SPARE):
            self.failures.append(outcome)
            logger.warning("round %d: client %d %s: %s", self._round, outcome.client_id, outcome.status, outcome.reason)
        self._tell(outcome)


def _node(request: Request) -> int:
    return request.message.metadata.dst_node_id


def _one_line(text: str) -> str:
    return " ".join(text.split())
