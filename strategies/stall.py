"""Who is waited for: one log line a minute, so that a round that hangs says where."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

from flwr.app import Message
from flwr.common.constant import HEARTBEAT_PATIENCE
from flwr.serverapp import Grid

from flwr_agent import protocol

logger = logging.getLogger("flwr.agent")
STALL_S = 60.0
"""Seconds of silence after which, and between which, a line is written."""


class Stall:
    """Called at every look for a reply that is not there yet.

    Example:
        >>> waiting = Stall(grid)
        >>> waiting([message])  # nothing, or once a minute:
        train of round 3 waits since 61 s for client 14 (node 11, last heartbeat 12 s ago)
    """

    def __init__(self, grid: Grid) -> None:
        self._grid = grid
        self._since = self._said = time.monotonic()

    def __call__(self, asked: Sequence[Message]) -> None:
        """Say who has not answered, if that has not been said for a while."""
        now = time.monotonic()
        if not asked or now - self._said < STALL_S:
            return
        self._said = now
        signs = _signs_of_life(self._grid)
        whom = ", ".join(_one(message, signs) for message in asked)
        about = asked[0].metadata
        logger.warning(
            "%s of round %s waits since %.0f s for %s", about.message_type, about.group_id, now - self._since, whom
        )


def _one(message: Message, signs: dict[int, str]) -> str:
    node = message.metadata.dst_node_id
    sign = signs.get(node, "not connected")
    client = protocol.client_of(message.content) if protocol.names_client(message.content) else None
    return f"client {client} (node {node}, {sign})" if client is not None else f"node {node} ({sign})"


def _signs_of_life(grid: Grid) -> dict[int, str]:
    """What Flower tells of each connected node: until when it believes in it; before 1.38 only that it is there."""
    if not hasattr(grid, "get_nodes"):
        return dict.fromkeys(grid.get_node_ids(), "connected")
    now = time.time()
    silences = {
        node.node_id: max(0.0, now - node.online_until + HEARTBEAT_PATIENCE * node.heartbeat_interval)
        for node in grid.get_nodes()
    }
    return {node: f"last heartbeat {silence:.0f} s ago" for node, silence in silences.items()}
