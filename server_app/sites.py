"""Held-out scores where every site has its own tasks: each plays its own, and the weakest stands beside the mean."""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Mapping

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, RecordDict
from flwr.serverapp import Grid

from flwr_agent import protocol
from flwr_agent.errors import ProtocolError
from flwr_agent.requests import EvaluateReply
from flwr_agent.sections import FederationConfig
from server_app.evaluate import Play, policy_of, scores
from strategies.nodes import Nodes
from strategies.stall import Stall
from strategies.stream import pull, push

logger = logging.getLogger("flwr.agent")
WORST = "worst_client/"
"""Prefix of the lowest value of a score over the clients."""


def on_sites(grid: Grid, record: ConfigRecord, federation: FederationConfig) -> Play:
    """Let every connected site play its own held-out tasks; one that does not answer is left out, by name."""
    nodes = Nodes(grid, protocol.BOUND, connect_timeout_s=federation.connect_timeout_s)
    known = set(range(federation.total_clients))
    awaited, least = set(known), federation.total_clients or federation.clients_per_round

    def play(round_: int, arrays: ArrayRecord) -> EvaluateReply:
        nonlocal known, awaited, least
        placed = protocol.for_round(record, round_=round_, placement=protocol.BOUND)
        content = protocol.request_content(*protocol.in_form(policy_of(arrays), placed))
        there = nodes.clients(at_least=least, known=awaited)
        known |= there.keys()
        absent = dict.fromkeys(known - there.keys(), "is not connected")
        if there:
            # Who has gone is waited for once, not before every evaluation.
            awaited, least = set(there), 1
        replies, silent = _asked(grid, content, round_, there, federation.round_timeout_s)
        absent = dict(sorted((absent | silent).items()))
        for client, reason in absent.items():
            logger.warning("round %d: client %d did not evaluate: %s", round_, client, reason)
        if not replies:
            raise ProtocolError(f"no site evaluated round {round_}; {len(there)} are connected")
        return dataclasses.replace(together(round_, replies), absent=absent)

    return play


def _asked(
    grid: Grid, content: RecordDict, round_: int, there: Mapping[int, int], timeout_s: float
) -> tuple[dict[int, EvaluateReply], dict[int, str]]:
    """What the clients of the nodes `there` have answered, and why the others have not."""
    deadline = time.monotonic() + timeout_s
    client_of = {node: client for client, node in there.items()}
    messages = [Message(content, node, MessageType.EVALUATE, group_id=str(round_)) for node in there.values()]
    sent, replies, stall = push(grid, messages), {}, Stall(grid)
    silent = dict.fromkeys(there, f"no answer within {timeout_s:g} s")
    for answer in pull(grid, sent, deadline, waiting=lambda ids: stall([sent[id_] for id_ in ids])):
        client = client_of[sent[answer.metadata.reply_to_message_id].metadata.dst_node_id]
        try:
            replies[client] = scores(answer, content)
        except ProtocolError as error:
            silent[client] = str(error)
    return replies, {client: reason for client, reason in silent.items() if client not in replies}


def together(round_: int, replies: Mapping[int, EvaluateReply]) -> EvaluateReply:
    """One reply of many clients: metrics are means over clients, beside the lowest success and each client's own.

    Example:
        >>> together(1, {0: EvaluateReply(round=1, metrics={"success": 0.5}), 4: EvaluateReply(round=1, metrics={"success": 0.1})}).metrics
        {'success': 0.3, 'worst_client/success': 0.1, 'clients': 2.0}
    """
    found = [replies[client] for client in sorted(replies)]
    names = [name for name in found[0].metrics if all(name in reply.metrics for reply in found)]
    metrics = {name: float(np.mean([reply.metrics[name] for reply in found])) for name in names}
    scores = [name for name in names if name.rpartition("/")[2] in ("success", "task_score")]
    worst = {WORST + name: min(reply.metrics[name] for reply in found) for name in scores}
    modes = [mode for mode in found[0].outcomes if all(mode in reply.outcomes for reply in found)]
    return EvaluateReply(
        round=round_,
        metrics=metrics | worst | {"clients": float(len(found))},
        outcomes={mode: tuple(value for reply in found for value in reply.outcomes[mode]) for mode in modes},
        tasks=tuple(f"{client}:{task}" for client in sorted(replies) for task in replies[client].tasks),
        types=tuple(kind for reply in found for kind in reply.types),
        clients={client: {name: replies[client].metrics[name] for name in scores} for client in sorted(replies)},
    )
