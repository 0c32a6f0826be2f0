"""The ClientApp: message -> request -> worker -> reply; the heavy half lives behind the worker call."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp

from client_app import mods
from flwr_agent import faults, protocol, site

logger = logging.getLogger("flwr.agent")
app = ClientApp()
RAISED = 2
"""Flower's error code of a ClientApp that raised."""


@app.train()
def train(message: Message, context: Context) -> Message:
    """Train the client that the request names."""
    return _answer(message, lambda asked: mods.apply(asked, context, _train))


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    """Score the model in the request on the held-out tasks."""
    return _answer(message, lambda asked: Message(_evaluate(asked.content, context), reply_to=asked))


@app.query("hello")
def hello(message: Message, context: Context) -> Message:
    """Say which partition this node holds."""
    return _answer(
        message, lambda asked: Message(protocol.hello_reply_content(asked.content, context.node_config), reply_to=asked)
    )


@app.query("goodbye")
def goodbye(message: Message, context: Context) -> Message:
    """End the worker that the run has left behind on this SuperNode."""
    return _answer(message, lambda asked: Message(_goodbye(asked.content, context), reply_to=asked))


def _goodbye(content: RecordDict, context: Context) -> RecordDict:
    reply = protocol.hello_reply_content(content, context.node_config)
    from flwr_agent.rl.remote import dismiss

    dismiss(_node(context))
    return reply


def _train(message: Message, context: Context) -> Message:
    request = protocol.train_request(message.content, context.node_config)
    request = replace(request, config=site.read(context.node_config).to_own(request.config))
    if not protocol.is_bound(message.content):
        faults.check(faults.scheduled(request.config), round_=request.round, client=request.client_id)
    from flwr_agent.rl.worker import call

    reply = call(request, **_seat(message.content, context))
    return Message(protocol.train_reply_content(request, reply), reply_to=message)


def _evaluate(content: RecordDict, context: Context) -> RecordDict:
    request = protocol.evaluate_request(content)
    request = replace(request, config=site.read(context.node_config).to_own(request.config))
    from flwr_agent.rl.worker import call

    return protocol.evaluate_reply_content(request, call(request, **_seat(content, context)))


def _seat(content: RecordDict, context: Context) -> dict[str, Any]:
    """Whose worker answers: the SuperNode's, or in simulation that of this actor, which serves many clients.

    A SuperNode starts a process like this one for every message, and is its parent.
    """
    if protocol.is_bound(content):
        return {"node": _node(context), "owner": os.getppid()}
    return {"node": f"actor-{os.getpid()}"}


def _node(context: Context) -> str:
    return f"node-{context.node_id}"


def _answer(message: Message, work: Callable[[Message], Message]) -> Message:
    """The reply, or an error reply of one line: whatever breaks on one client must not stop the others."""
    try:
        return protocol.answered(message, work)
    except Exception as error:
        logger.exception("%s failed", message.metadata.message_type)
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        return Message(Error(RAISED, reason), reply_to=message)
