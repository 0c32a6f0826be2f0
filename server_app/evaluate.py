"""Held-out scores of the global model: who plays, when, and what is kept of it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Sequence
from functools import partial

from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid

from flwr_agent import protocol
from flwr_agent.arrays import ACTOR, from_record
from flwr_agent.config import RunConfig
from flwr_agent.errors import ProtocolError
from flwr_agent.requests import EvaluateReply, EvaluateRequest
from server_app.ledger import Ledger
from strategies.nodes import default_placement
from strategies.stall import Stall
from strategies.stream import pull, push

logger = logging.getLogger("flwr.agent")
Play = Callable[[int, ArrayRecord], EvaluateReply]
"""Scores the model of a round."""


def is_due(config: RunConfig, round_: int) -> bool:
    """Round 0, the last one, and every `evaluation.every` in between."""
    if config.evaluation.where == "off":
        return False
    return round_ in (0, config.federation.rounds) or round_ % config.evaluation.every == 0


def on_server(config: RunConfig, experiment: str, serve: Callable[[EvaluateRequest], EvaluateReply]) -> Play:
    """Play in this process."""

    def play(round_: int, arrays: ArrayRecord) -> EvaluateReply:
        values = from_record(policy_of(arrays))
        return serve(EvaluateRequest(experiment=experiment, round=round_, config=config, arrays=values))

    return play


def on_client(grid: Grid, record: ConfigRecord, *, timeout_s: float) -> Play:
    """Let one connected node play, the next one if it fails: tasks and seeds are the same everywhere."""

    def play(round_: int, arrays: ArrayRecord) -> EvaluateReply:
        deadline = time.monotonic() + timeout_s
        placed = protocol.for_round(record, round_=round_, placement=default_placement(grid))
        content = protocol.request_content(*protocol.in_form(policy_of(arrays), placed))
        reasons = []
        for node in sorted(grid.get_node_ids()):
            message, stall = Message(content, node, MessageType.EVALUATE, group_id=str(round_)), Stall(grid)
            for answer in pull(grid, push(grid, [message]), deadline, waiting=partial(_say_who, stall, message)):
                try:
                    return scores(answer, content)
                except ProtocolError as error:
                    reasons.append(f"node {node}: {error}")
        raise ProtocolError(f"no node evaluated round {round_}: {'; '.join(reasons) or 'none answered'}")

    return play


def _say_who(stall: Stall, message: Message, _ids: Sequence[str]) -> list[Message]:
    return stall([message])


def scores(answer: Message, asked: RecordDict) -> EvaluateReply:
    """What a node has answered to `asked`.

    Raises:
        ProtocolError: an error, or a reply that is refused.
    """
    if answer.has_error():
        raise ProtocolError(answer.error.reason)
    return protocol.evaluate_reply(answer.content, asked)


def policy_of(arrays: ArrayRecord) -> ArrayRecord:
    """What acts: a critic stays at home."""
    return ArrayRecord({name: values for name, values in arrays.items() if name.startswith(ACTOR)})


class Evaluation:
    """The `evaluate_fn` of a run: scores the rounds that are due and not in the ledger yet."""

    def __init__(self, config: RunConfig, ledger: Ledger, play: Play, *, done: Collection[int]) -> None:
        self._config, self._ledger, self._play, self._done = config, ledger, play, done

    def __call__(self, round_: int, arrays: ArrayRecord) -> MetricRecord | None:
        """Score a round; one that cannot be scored gets a line that says so, and no figure."""
        if round_ in self._done or not is_due(self._config, round_):
            return None
        self._ledger.append("evaluating", round=round_)
        started = time.monotonic()
        try:
            reply = self._play(round_, arrays)
        except ProtocolError as error:
            logger.warning("round %d is not scored: %s", round_, error)
            self._ledger.append("evaluation_failed", round=round_, reason=str(error))
            return None
        self._ledger.append(
            "evaluation",
            round=round_,
            where=self._config.evaluation.where,
            metrics=reply.metrics,
            outcomes=reply.outcomes,
            tasks=reply.tasks,
            types=reply.types,
            **({"episodes": reply.episodes} if reply.episodes else {}),
            **({"clients": reply.clients} if reply.clients else {}),
            **({"absent": reply.absent} if reply.absent else {}),
            seconds=time.monotonic() - started,
        )
        return MetricRecord({name: float(value) for name, value in reply.metrics.items()})
