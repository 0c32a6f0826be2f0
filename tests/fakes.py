"""An in-memory Grid whose transport misbehaves on request, and clients that learn by arithmetic."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.supercore.run import Run

from flwr_agent import protocol
from flwr_agent.config import RunConfig, resolve
from flwr_agent.requests import Arrays, TrainReply, TrainRequest
from flwr_agent.seeds import rng

NEVER = 10**9
Serve = Callable[[Message], list[Message]]


@dataclass
class FakeGrid(Grid):
    """Delivers each message to `serve` at once and shows the replies after `delay` looks at their message id."""

    serve: Serve
    nodes: list[int] = field(default_factory=lambda: [11, 7])
    delay: Callable[[Message], int] = lambda _: 0
    refuse: Callable[[Message], bool] = lambda _: False
    sent: list[Message] = field(default_factory=list)
    pulled: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._replies: dict[str, list[Message]] = {}
        self._waits: dict[str, int] = {}

    def get_node_ids(self) -> Iterable[int]:
        return list(self.nodes)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str | None]:
        ids: list[str | None] = []
        for message in messages:
            if self.refuse(message):
                ids.append(None)
                continue
            message_id = str(uuid.uuid4())
            message.metadata.__dict__["_message_id"] = message_id
            self.sent.append(message)
            self._replies[message_id], self._waits[message_id] = self.serve(message), self.delay(message)
            ids.append(message_id)
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        found: list[Message] = []
        for message_id in message_ids:
            self._waits[message_id] -= 1
            if self._waits[message_id] < 0 and self._replies[message_id]:
                self.pulled.append(message_id)
                found += self._replies[message_id]
                self._replies[message_id] = []
        return found

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        return self.pull_messages([i for i in self.push_messages(messages) if i])

    def create_message(self, *args: object, **kwargs: object) -> Message:
        raise NotImplementedError("deprecated by Flower")

    def set_run(self, run: Run) -> None:
        self._run = run

    @property
    def run(self) -> Run:
        return Run.create_empty(1)


class InMemoryGrid(FakeGrid):
    """The fake under the name by which Flower's simulation is known."""


def config(**keys: object) -> RunConfig:
    """A run configuration; `federation__rounds=3` sets `federation.rounds`."""
    return resolve({key.replace("__", "."): value for key, value in keys.items()})


def model(seed: int = 0, scale: float = 1.0) -> Arrays:
    """Three small arrays, one of them a scalar."""
    draw = rng("fake-model", seed)
    shapes = {"actor/embed": (4, 3), "actor/head.weight": (3, 5), "actor/scale": ()}
    return {name: np.asarray(draw.standard_normal(shape) * scale, dtype=np.float32) for name, shape in shapes.items()}


def train(request: TrainRequest) -> TrainReply:
    """A trainer: the same bits for the same model, seed, round and client, whatever was trained before."""
    arrays: Arrays = {}
    for name, values in request.arrays.items():
        noise = rng(request.config.seed, request.round, request.client_id, name).standard_normal(values.shape)
        arrays[name] = np.asarray(values * np.float32(0.9) + noise.astype(np.float32), dtype=np.float32)
    metrics = {"reward": float(request.client_id), "time/rollout": 1.0}
    num_examples = 10 + request.client_id
    return TrainReply(
        round=request.round, client_id=request.client_id, arrays=arrays, num_examples=num_examples, metrics=metrics
    )


def client(trainer: Callable[[TrainRequest], TrainReply] = train) -> Serve:
    """A client that answers train messages through the protocol."""

    def serve(message: Message) -> list[Message]:
        return [protocol.answered(message, answer)]

    def answer(message: Message) -> Message:
        request = protocol.train_request(message.content, {})
        return Message(protocol.train_reply_content(request, trainer(request)), reply_to=message)

    return serve


def app_nodes(app: ClientApp, partitions: Mapping[int, int | None]) -> Serve:
    """Deployed nodes: each runs the ClientApp under its own node_config."""

    def serve(message: Message) -> list[Message]:
        node = message.metadata.dst_node_id
        partition = partitions[node]
        node_config = {} if partition is None else {"partition-id": partition}
        return [app(message, Context(1, node, node_config, RecordDict(), {}))]

    return serve
