"""OpenEnv's WebSocket protocol: serve an adapter to its clients, and play the environments of its servers.

OpenEnv itself is not needed. A connection to `/ws` is a session. `reset` chooses a task by `split` and `index`, `step`
sends an action as `{"text": ...}`, `state` asks how far the episode is; an answer holds `observation`, `reward`, `done`.
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from typing import Any

from websockets.asyncio.server import ServerConnection
from websockets.exceptions import WebSocketException
from websockets.sync.client import ClientConnection, connect

from envs.base import EnvAdapter, Step, Task
from envs.places import address
from envs.plain import PlainAdapter
from envs.remote import wire
from envs.remote.leases import Leases
from envs.remote.listen import listen, port_of
from flwr_agent.errors import ConfigError, EnvError
from flwr_agent.seeds import seed_for

MAX_BYTES = 100 << 20
"""Largest answer of an OpenEnv server that is read."""


@asynccontextmanager
async def to_openenv(
    adapter: EnvAdapter, *, host: str = "127.0.0.1", port: int = 0, token: str | None = None, slots: int = 64
) -> AsyncIterator[int]:
    """Serve `adapter` to OpenEnv clients as long as the block runs; gives the port.

    Args:
        adapter: the environment.
        host: address to listen on.
        port: port to listen on, 0 for any that is free.
        token: what clients must send as `Authorization: Bearer`; OpenEnv's own clients send none.
        slots: episodes at once.

    Raises:
        ConfigError: the address cannot be bound.
    """
    leases, numbers = Leases(slots=slots), itertools.count()

    async def handle(connection: ServerConnection) -> None:
        session = _Session(adapter, leases, f"session-{next(numbers)}")
        try:
            async for frame in connection:
                answer = await session.answer(frame)
                if answer is None:
                    break
                await connection.send(wire.encode(answer))
        finally:
            session.close()

    server = await listen(handle, lambda: {"status": "healthy"}, host=host, port=port, token=token)
    try:
        yield port_of(server)
    finally:
        server.close()
        await leases.aclose()
        await server.wait_closed()


class _Session:
    """One connection: an episode after the other."""

    def __init__(self, adapter: EnvAdapter, leases: Leases, name: str):
        self._adapter, self._leases, self._name = adapter, leases, name
        self._num_episodes, self._num_steps = 0, 0
        self._episode, self._shown = "", ""

    async def answer(self, frame: str | bytes) -> dict[str, Any] | None:
        """What to send back; None at the session's end."""
        try:
            message = wire.decode(frame)
        except ValueError as error:
            return _error("INVALID_JSON", error)
        try:
            match message.get("type"):
                case "reset":
                    return await self._reset(message.get("data", {}))
                case "step":
                    return await self._step(message["data"]["text"])
                case "state":
                    return {"type": "state", "data": {"episode_id": self._shown, "step_count": self._num_steps}}
                case "close":
                    return None
                case unknown:
                    return _error("UNKNOWN_TYPE", f"unknown message type: {unknown}")
        except (KeyError, TypeError, IndexError) as error:
            return _error("VALIDATION_ERROR", repr(error))
        except Exception as error:  # noqa: BLE001 (the environment boundary)
            return _error("EXECUTION_ERROR", error)

    def close(self) -> None:
        """Give the slot back."""
        if self._episode:
            self._leases.close(self._episode)

    async def _reset(self, data: Mapping[str, Any]) -> dict[str, Any]:
        self.close()
        tasks, seed = self._adapter.tasks(data.get("split", "train")), data.get("seed")
        index = data.get("index", (seed or 0) % len(tasks))
        if not 0 <= index < len(tasks):
            raise IndexError(f"index {index} is outside 0..{len(tasks) - 1}")
        task = tasks[index]
        self._num_episodes, self._num_steps = self._num_episodes + 1, 0
        self._episode = f"{self._name}-{self._num_episodes}"
        self._shown = str(data.get("episode_id") or self._episode)
        world = seed_for("world", task.id) if seed is None else int(seed)
        return _observation(await self._leases.reset(self._episode, self._adapter.make, task, seed=world))

    async def _step(self, action: str) -> dict[str, Any]:
        step = await self._leases.step(self._episode, self._num_steps + 1, str(action))
        self._num_steps += 1
        return _observation(step)


def _observation(step: Step) -> dict[str, Any]:
    observation = {"text": step.text, "admissible": step.admissible, **step.info}
    return {"type": "observation", "data": {"observation": observation, "reward": step.reward, "done": step.done}}


def _error(code: str, message: object) -> dict[str, Any]:
    return {"type": "error", "data": {"message": str(message), "code": code}}


def from_openenv(
    url: str,
    *,
    splits: Mapping[str, int],
    action: str = "text",
    observation: str = "text",
    timeout_s: float = 60.0,
    style: str = "paper",
) -> PlainAdapter:
    """The environment of an OpenEnv server as an adapter.

    Args:
        url: `http://HOST:PORT` of the server.
        splits: number of tasks by split; task i of a split is what `reset(split=..., index=i)` begins.
        action: field of an action that takes the text.
        observation: field of an observation that holds the text.
        timeout_s: seconds an answer may take.
        style: prompt style.

    Raises:
        ConfigError: the address is none.
    """
    address("url", url, "give http://HOST:PORT of an OpenEnv server")
    fields = {"action": action, "observation": observation}
    settings = {"url": url, "splits": dict(splits), **fields, "timeout_s": timeout_s}
    return PlainAdapter(OpenEnvWorld, "openenv", settings, style=style, variant=None)


class OpenEnvWorld:
    """A session of an OpenEnv server as a plain class; the connection is made at the first reset."""

    version = "1"

    def __init__(self, *, url: str, splits: Mapping[str, int], action: str, observation: str, timeout_s: float):
        self._address = f"ws{url.removeprefix('http').rstrip('/')}/ws"
        self._splits, self._action, self._observation = splits, action, observation
        self._timeout_s = timeout_s
        self._open = ExitStack()
        self._connection: ClientConnection | None = None
        self._task_id = ""

    def tasks(self, split: str) -> Sequence[Task]:
        """As many tasks as were said to be there."""
        if split not in self._splits:
            raise ConfigError("split", split, "not among the splits given", allowed=self._splits)
        numbers = range(self._splits[split])
        return [Task(f"{split}-{n}", split, {"category": "openenv", "index": n}) for n in numbers]

    def reset(self, task: Task, seed: int) -> Step:
        """Begin the task on the server."""
        self._task_id = task.id
        return self._ask("reset", {"split": task.split, "index": task.meta["index"], "seed": seed})

    def step(self, action: str) -> Step:
        """Send an action."""
        return self._ask("step", {self._action: action})

    def close(self) -> None:
        """End the session."""
        self._connection = None
        self._open.close()

    def _ask(self, kind: str, data: Mapping[str, Any]) -> Step:
        try:
            connection = self._connection
            if connection is None:
                opening = connect(self._address, proxy=None, max_size=MAX_BYTES, open_timeout=self._timeout_s)
                connection = self._connection = self._open.enter_context(opening)
            connection.send(wire.encode({"type": kind, "data": data}))
            answer = wire.decode(connection.recv(timeout=self._timeout_s))
        except (OSError, EOFError, ValueError, WebSocketException) as error:
            self.close()
            raise EnvError(f"openenv {self._address}: {type(error).__name__}: {error}") from error
        if answer.get("type") != "observation":
            raise EnvError(f"openenv {self._address}: {answer.get('data')}")
        return self._to_step(answer["data"])

    def _to_step(self, data: Mapping[str, Any]) -> Step:
        seen = dict(data["observation"])
        text, admissible = str(seen.pop(self._observation)), seen.pop("admissible", None)
        reward, is_done = float(data.get("reward") or 0.0), bool(data.get("done"))
        info = seen | {"task_id": self._task_id}
        return Step(text, reward, is_done, admissible=tuple(admissible) if admissible else None, info=info)
