"""Which node serves which client."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence

from flwr.app import Message
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid

from flwr_agent import protocol
from flwr_agent.errors import ConfigError, ProtocolError
from strategies.stream import POLL_S, pull, push


def default_placement(grid: Grid) -> str:
    """`any` in simulation, where nodes are interchangeable; `partition` where a node holds its own tasks."""
    # The class has moved between Flower releases; its name has not.
    return protocol.ANY if type(grid).__name__ == "InMemoryGrid" else protocol.BOUND


def farewell(grid: Grid, *, timeout_s: float = 30.0) -> None:
    """Tell every deployed node that the run is over, so that what it keeps warm ends; a silent one is not waited for."""
    if default_placement(grid) == protocol.BOUND:
        nodes = sorted(grid.get_node_ids())
        sent = push(grid, [Message(protocol.hello_content(), node, protocol.GOODBYE) for node in nodes])
        for _ in pull(grid, sent, time.monotonic() + timeout_s):
            pass


class Nodes:
    """Finds a node for every client, and remembers which partition-id each node has told.

    Nodes may come and go between rounds; a restarted one returns under another node id and the same partition-id.
    """

    def __init__(self, grid: Grid, placement: str, *, connect_timeout_s: float) -> None:
        self._grid, self._placement, self._timeout_s = grid, placement, connect_timeout_s
        self._partitions: dict[int, int | None] = {}
        self._refused: dict[int, str] = {}

    def place(self, clients: Sequence[int], *, avoid: int | None = None) -> dict[int, int]:
        """Client id -> node id for every client that a connected node can serve, waiting a while for all.

        Where any node serves any client, it is another one than `avoid`, if there is another.
        """
        deadline = time.monotonic() + self._timeout_s
        while True:
            placed = self._place_now(clients, avoid, deadline)
            if len(placed) == len(clients) or time.monotonic() >= deadline:
                return placed
            time.sleep(POLL_S)

    def clients(self, at_least: int, known: Collection[int] = ()) -> dict[int, int]:
        """Client id -> node id of everyone connected, waiting a while for `at_least` and for those `known` by id.

        Raises:
            ConfigError: nodes are not told apart, as in simulation.
        """
        if self._placement == protocol.ANY:
            fix = "nobody knows who takes part where any node serves any client; set the number of clients"
            raise ConfigError("federation.total_clients", 0, fix)
        deadline = time.monotonic() + self._timeout_s
        while True:
            found = self._connected(deadline)
            is_full = len(found) >= at_least and found.keys() >= set(known)
            if is_full or time.monotonic() >= deadline:
                break
            time.sleep(POLL_S)
        return dict(sorted(found.items()))

    def why_not(self, client_id: int) -> str:
        """One line on a client that `place` left out."""
        if self._placement == protocol.ANY:
            return f"no node was connected within {self._timeout_s:g} s"
        known = sorted({p for p in self._partitions.values() if p is not None})
        refused = "".join(f"; node {node}: {reason}" for node, reason in sorted(self._refused.items()))
        return (
            f"no node has {protocol.PARTITION}={client_id} (connected: {', '.join(map(str, known)) or 'none'}); "
            f"start a SuperNode with --node-config '{protocol.PARTITION}={client_id}'{refused}"
        )

    def _place_now(self, clients: Sequence[int], avoid: int | None, deadline: float) -> dict[int, int]:
        nodes = sorted(self._grid.get_node_ids())
        if self._placement == protocol.ANY:
            nodes = [node for node in nodes if node != avoid] or nodes
            return {client: nodes[i % len(nodes)] for i, client in enumerate(clients)} if nodes else {}
        holders = self._connected(deadline)
        return {client: holders[client] for client in clients if client in holders}

    def _connected(self, deadline: float) -> dict[int, int]:
        """Client id -> node id by what every node has told; one that comes back under another node id replaces itself."""
        nodes = sorted(self._grid.get_node_ids())
        self._greet([node for node in nodes if node not in self._partitions | self._refused], deadline)
        known = {node: self._partitions.get(node) for node in nodes}
        return {client: node for node, client in known.items() if client is not None}

    def _greet(self, nodes: Sequence[int], deadline: float) -> None:
        sent = push(self._grid, [Message(protocol.hello_content(), node, protocol.HELLO) for node in nodes])
        for reply in pull(self._grid, sent, deadline):
            node = sent[reply.metadata.reply_to_message_id].metadata.dst_node_id
            if reply.has_error():
                if reply.error.code == ErrorCode.NODE_UNAVAILABLE:
                    continue  # a site's id is that of its key: it may come back under it
                self._refused[node] = f"refused {protocol.HELLO}: {reply.error.reason}"
                continue
            try:
                self._partitions[node] = protocol.hello_reply(reply.content)
            except ProtocolError as error:
                self._refused[node] = str(error)
