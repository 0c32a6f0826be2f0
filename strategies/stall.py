"""Who is waited for: one log line a minute, so that a round that hangs says where; and who is waited for in vain."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from flwr.app import Error, Message
from flwr.common.constant import HEARTBEAT_PATIENCE, ErrorCode
from flwr.serverapp import Grid

from flwr_agent import protocol

if TYPE_CHECKING:
    from flwr.proto.node_pb2 import NodeInfo

logger = logging.getLogger("flwr.agent")
STALL_S = 60.0
"""Seconds of silence after which, and between which, a line is written."""
FORGOTTEN = "its SuperNode was started anew and knows nothing of the request"


class Stall:
    """Called at every look for replies that are not there yet; returns errors in place of those that will not come.

    Flower answers for a node that is gone, but not for one that is back before anybody has looked: whatever a SuperNode had
    taken is lost with it, and the SuperLink waits on. Before Flower 1.38 that cannot be told.

    Example:
        >>> waiting = Stall(grid)
        >>> waiting([message])  # nothing, or once a minute:
        train of round 3 waits since 61 s for client 14 (node 11, last heartbeat 12 s ago)
    """

    def __init__(self, grid: Grid) -> None:
        self._grid = grid
        self._since = self._said = time.monotonic()

    def __call__(self, asked: Sequence[Message]) -> list[Message]:
        """Say who has not answered, if that has not been said for a while, and give up whose node has forgotten it."""
        now = time.monotonic()
        if not asked or now - self._said < STALL_S:
            return []
        self._said = now
        nodes = {node.node_id: node for node in self._grid.get_nodes()} if hasattr(self._grid, "get_nodes") else {}
        signs = _signs_of_life(nodes) if nodes else dict.fromkeys(self._grid.get_node_ids(), "connected")
        whom = ", ".join(_one(message, signs) for message in asked)
        about = asked[0].metadata
        logger.warning(
            "%s of round %s waits since %.0f s for %s", about.message_type, about.group_id, now - self._since, whom
        )
        lost = [message for message in asked if _is_forgotten(message, nodes.get(message.metadata.dst_node_id))]
        return [Message(Error(ErrorCode.NODE_UNAVAILABLE, FORGOTTEN), reply_to=message) for message in lost]


def _one(message: Message, signs: dict[int, str]) -> str:
    node = message.metadata.dst_node_id
    sign = signs.get(node, "not connected")
    client = protocol.client_of(message.content) if protocol.names_client(message.content) else None
    return f"client {client} (node {node}, {sign})" if client is not None else f"node {node} ({sign})"


def _signs_of_life(nodes: dict[int, NodeInfo]) -> dict[int, str]:
    """What Flower tells of each connected node: until when it believes in it."""
    now = time.time()
    silences = {
        node_id: max(0.0, now - node.online_until + HEARTBEAT_PATIENCE * node.heartbeat_interval)
        for node_id, node in nodes.items()
    }
    return {node_id: f"last heartbeat {silence:.0f} s ago" for node_id, silence in silences.items()}


def _is_forgotten(message: Message, node: NodeInfo | None) -> bool:
    """Whether the node came up after it was asked. One that had not taken the request yet is asked twice then."""
    if node is None or not node.last_activated_at:
        return False
    return datetime.fromisoformat(node.last_activated_at).timestamp() > message.metadata.created_at
