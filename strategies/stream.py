"""Send requests one by one and pull their replies in the order they were sent, one reply in hand at a time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence

from flwr.app import Message
from flwr.serverapp import Grid

POLL_S, MAX_POLL_S, GROWTH = 0.2, 1.0, 0.05
"""Seconds between two looks for a reply that has not come: the least, the most, and as a share of the wait so far.

A look costs the SuperLink several queries; so a long wait asks rarely, and learns of a reply a twentieth late at most.
"""

Waiting = Callable[[Sequence[str]], Sequence[Message]]


def push(grid: Grid, messages: Iterable[Message]) -> dict[str, Message]:
    """Message id -> message, in order; a message the transport refuses is left out.

    One at a time, because the transport holds a serialised copy of all messages of one call.
    """
    sent: dict[str, Message] = {}
    for message in messages:
        for message_id in grid.push_messages([message]):
            if message_id:
                sent[message_id] = message
    return sent


def pull(
    grid: Grid,
    message_ids: Iterable[str],
    deadline: float,
    *,
    waiting: Waiting = lambda _: (),
) -> Iterator[Message]:
    """Replies in the order of `message_ids`; others wait where the transport keeps them.

    A reply that is missing when the clock (`time.monotonic`) reaches `deadline` is skipped; each later one is still
    looked for once, since it may have come while an earlier one was waited for. `waiting` is called at every look in vain
    with the ids that are looked for, and what it returns takes the place of their replies.
    """
    since = time.monotonic()
    for message_id in message_ids:
        replies = list(grid.pull_messages([message_id]))
        while not replies and time.monotonic() < deadline:
            if not (replies := list(waiting([message_id]))):
                pause(since)
                replies = list(grid.pull_messages([message_id]))
        while replies:
            yield replies.pop(0)


def race(grid: Grid, message_ids: list[str], deadline: float, *, waiting: Waiting = lambda _: ()) -> Iterator[Message]:
    """Replies as they come, until the clock reaches `deadline`; ids that the caller appends meanwhile count too.

    `waiting` is called after every look at all of them, and what it returns takes the place of replies.
    """
    since = time.monotonic()
    while message_ids:
        for message_id in list(message_ids):
            if replies := list(grid.pull_messages([message_id])):
                message_ids.remove(message_id)
            while replies:
                yield replies.pop(0)
        if time.monotonic() >= deadline:
            return
        for message in waiting(message_ids):
            message_ids.remove(message.metadata.reply_to_message_id)
            yield message
        pause(since)


def pause(since: float) -> None:
    """Wait between two looks, the longer the more time has passed since the clock read `since`."""
    time.sleep(min(MAX_POLL_S, max(POLL_S, GROWTH * (time.monotonic() - since))))
