"""One round's requests on their way and back: who is asked again, and in which order replies are handed out."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from flwr.app import Message
from flwr.serverapp import Grid

from flwr_agent import protocol
from strategies.fold import Fold, Request
from strategies.stall import Stall
from strategies.stream import pull, push, race


class Exchange:
    """Sends the requests of a fold and hands out what comes back, for the fold to take before it asks for more.

    A client whose reply cannot be used is asked again, never another one in its place: its tasks are its own.
    """

    def __init__(self, grid: Grid, fold: Fold, *, again: Callable[[Request], Message | None], retries: int) -> None:
        """Serve one round.

        Args:
            grid: the way to the nodes.
            fold: the round's requests; told of what could not be sent.
            again: makes another message for the client of a lost request, or None if no node can be found for it.
            retries: requests to a client beyond the first.
        """
        self.sent_bytes = 0
        """Array bytes of all requests."""
        self._grid, self._fold, self._again, self._retries = grid, fold, again, retries

    def send(self) -> None:
        """Send every request of the fold."""
        for request in list(self._fold.requests):
            self._send(request)

    def in_order(self, deadline: float) -> Iterator[Message]:
        """Replies in the order of the requests; a retry is waited for before the next client's reply is fetched."""
        for request in list(self._fold.requests):
            current: Request | None = request
            stall = Stall(self._grid)
            while current is not None:
                yield from pull(self._grid, _ids([current]), deadline, waiting=partial(self._say_who, stall))
                current = self._retry(current, deadline)

    def first(self, wanted: int, deadline: float) -> Iterator[Message]:
        """Replies as they come until `wanted` of them are accepted."""
        ids, stall = _ids(self._fold.requests) + self._retry_lost(deadline), Stall(self._grid)
        for reply in race(self._grid, ids, deadline, waiting=partial(self._say_who, stall)):
            yield reply
            if len(self._fold.accepted) >= wanted:
                return
            ids += self._retry_lost(deadline)

    def _say_who(self, stall: Stall, ids: Sequence[str]) -> list[Message]:
        return stall([r.message for r in self._fold.requests if r.message.metadata.message_id in ids])

    def _retry_lost(self, deadline: float) -> list[str]:
        retries = [self._retry(request, deadline) for request in list(self._fold.requests)]
        return _ids([retry for retry in retries if retry is not None])

    def _retry(self, request: Request, deadline: float) -> Request | None:
        newest = max(r.attempt for r in self._fold.requests if r.client_id == request.client_id)
        is_due = request.is_lost and request.attempt == newest <= self._retries
        message = self._again(request) if is_due and time.monotonic() < deadline else None
        if message is None:
            return None
        retry = self._fold.ask(message)
        self._send(retry)
        return retry

    def _send(self, request: Request) -> None:
        if push(self._grid, [request.message]):
            self.sent_bytes += protocol.payload_bytes(request.message.content)
        else:
            self._fold.refused(request)


def _ids(requests: Sequence[Request]) -> list[str]:
    return [request.message.metadata.message_id for request in requests if request.status is None]
