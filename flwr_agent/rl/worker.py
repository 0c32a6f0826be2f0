"""The worker boundary: a request in, a reply out, in this process or in one that outlives it.

Inline, the learner is a module-level value: simulated actors keep it from round to round. It is keyed by its run and by
what it is made of, never by a client, so any actor serves any client.
"""

from __future__ import annotations

import gc
import os
from typing import TYPE_CHECKING, overload

from flwr_agent.config import RunConfig
from flwr_agent.requests import EvaluateReply, EvaluateRequest, InitialModel, TrainReply, TrainRequest
from flwr_agent.rl.launch import visible_gpus

if TYPE_CHECKING:
    from flwr_agent.rl.learner import Learner

_LEARNERS: dict[str, Learner] = {}


def serve(request: TrainRequest | EvaluateRequest) -> TrainReply | EvaluateReply:
    """Answer a request with the learner of its run and configuration, made on first use; it takes the last one's place."""
    from flwr_agent.rl.learner import Learner

    key = f"{request.experiment} {request.config.identity()}"
    if key not in _LEARNERS:
        while _LEARNERS:
            _LEARNERS.popitem()[1].close()
        gc.collect()  # trainers hang in cycles: the old models go before the new ones come
        _LEARNERS[key] = Learner(request.config)
    learner = _LEARNERS[key]
    return learner.train(request) if isinstance(request, TrainRequest) else learner.evaluate(request)


def initial_model(config: RunConfig) -> InitialModel:
    """What a federation of this configuration starts from."""
    from flwr_agent.rl.learner import initial_model as make

    return make(config)


@overload
def call(request: TrainRequest, *, node: str = "local", owner: int = 0) -> TrainReply: ...
@overload
def call(request: EvaluateRequest, *, node: str = "local", owner: int = 0) -> EvaluateReply: ...
def call(request: TrainRequest | EvaluateRequest, *, node: str = "local", owner: int = 0) -> TrainReply | EvaluateReply:
    """Answer a request where `worker.mode` says: in this process, or in the node's worker process.

    Args:
        request: what to answer.
        node: whose worker.
        owner: id of the process that the worker works for, if it outlives this one; `auto` means a worker process then.

    Raises:
        ConfigError: `worker.python` cannot be started, or lacks a package.
        WorkerError: the worker process died or answered with an error.
    """
    if is_inline(request.config, has_owner=bool(owner)):
        return serve(request)
    from flwr_agent.rl.remote import ask

    return ask(request, node, owner=owner or os.getpid())


def is_inline(config: RunConfig, *, has_owner: bool) -> bool:
    """Whether the worker is this process."""
    worker = config.worker
    if worker.mode == "auto":
        return not (has_owner or worker.python != "same" or visible_gpus())
    return worker.mode == "inline"
