"""The worker boundary: a request in, a reply out, in this process or in one that outlives it.

Inline, the learner is a module-level value: simulated actors keep it from round to round. It is keyed by its run and by
what it is made of, never by a client, so any actor serves any client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flwr_agent.config import RunConfig
from flwr_agent.requests import EvaluateReply, EvaluateRequest, InitialModel, TrainReply, TrainRequest

if TYPE_CHECKING:
    from flwr_agent.rl.learner import Learner

_LEARNERS: dict[str, Learner] = {}


def serve(request: TrainRequest | EvaluateRequest) -> TrainReply | EvaluateReply:
    """Answer a request with the learner of its run and configuration, made on first use; it takes the last one's place."""
    from flwr_agent.rl.learner import Learner

    key = f"{request.experiment} {request.config.identity()}"
    if key not in _LEARNERS:
        _LEARNERS.clear()
        _LEARNERS[key] = Learner(request.config)
    learner = _LEARNERS[key]
    return learner.train(request) if isinstance(request, TrainRequest) else learner.evaluate(request)


def initial_model(config: RunConfig) -> InitialModel:
    """What a federation of this configuration starts from."""
    from flwr_agent.rl.learner import initial_model as make

    return make(config)


def call(request: TrainRequest | EvaluateRequest, *, node: str = "local") -> TrainReply | EvaluateReply:
    """Answer a request where `worker.mode` says: in this process, or in the node's worker process.

    Raises:
        ConfigError: `worker.python` cannot be started.
        WorkerError: the worker process died or answered with an error.
    """
    if request.config.worker.mode == "inline":
        return serve(request)
    from flwr_agent.rl.remote import ask

    return ask(request, node)
