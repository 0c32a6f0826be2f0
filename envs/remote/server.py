"""Serves one environment: tasks, prompts and episodes over WebSockets, every request bounded in size and time."""

from __future__ import annotations

import asyncio
import platform
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from websockets.asyncio.server import ServerConnection

from envs.base import EnvAdapter, Task, Variant
from envs.named import blamed
from envs.remote import wire
from envs.remote.leases import BusyError, Leases, LostError
from envs.remote.listen import listen, port_of
from flwr_agent.errors import ConfigError, EnvError

GRACE_S = 30.0
"""Seconds an episode waits for its client to connect again."""
MAX_WORLDS = 256
"""Adapters kept at once; one that was dropped is built again when a client asks for it."""

STANDARD = "paper"
"""Prompt style of the adapter that is built first."""
Make = Callable[[str, Variant | None], EnvAdapter]
"""An adapter in a prompt style and a client's world."""


@dataclass(frozen=True, slots=True)
class World:
    """One adapter, and its tasks by split and id as far as they were asked for."""

    adapter: EnvAdapter
    tasks: dict[str, dict[str, Task]] = field(default_factory=dict)


@dataclass(slots=True)
class Service:
    """What a server knows: how to build worlds, the worlds built so far, and the episodes in play."""

    make: Make
    leases: Leases
    _worlds: dict[str, World] = field(default_factory=dict)
    _names: dict[str, str] = field(default_factory=dict)
    _building: asyncio.Lock = field(default_factory=asyncio.Lock)
    _heard: dict[str, set[str]] = field(default_factory=dict)
    """Episode -> the episodes of the connection on which it was last heard of."""

    async def handle(self, connection: ServerConnection) -> None:
        """Answer the requests of one connection in order.

        When it is gone, the episodes that were last heard of on it expire soon.
        """
        episodes: set[str] = set()
        try:
            async for frame in connection:
                await connection.send(await self._answer(frame, episodes))
        finally:
            for episode in episodes:
                if self._heard.get(episode) is episodes:
                    del self._heard[episode]
                    self.leases.expire(episode, after_s=GRACE_S)

    async def _answer(self, frame: str | bytes, episodes: set[str]) -> str:
        try:
            request = wire.decode(frame)
            if request.get("op") in ("reset", "step"):
                episodes.add(request["episode"])
                self._heard[request["episode"]] = episodes
            return wire.encode({"ok": await self._operate(request)})
        except Exception as error:  # noqa: BLE001 (the environment boundary)
            return wire.encode({"error": _kind(error), "message": str(error) or type(error).__name__})

    async def _operate(self, request: Mapping[str, Any]) -> Any:
        match request["op"]:
            case "step":
                step = await self.leases.step(request["episode"], int(request["seq"]), str(request["action"]))
                return wire.from_step(step)
            case "reset":
                make, task = self._world(request).adapter.make, await self._task(request)
                step = await self.leases.reset(request["episode"], make, task, seed=int(request["seed"]))
                return wire.from_step(step)
            case "close":
                return self.leases.close(request["episode"])
            case "open":
                return await self._open(request["style"], wire.to_variant(request["variant"]))
            case "tasks":
                tasks, start = list((await self._split(request)).values()), int(request["start"])
                page = tasks[start : start + wire.TASKS_A_PAGE]
                return {"tasks": [[task.id, dict(task.meta)] for task in page], "total": len(tasks)}
            case "render":
                return self._world(request).adapter.render(wire.to_view(request["view"]))
            case "parse":
                return self._world(request).adapter.parse_action(request["text"])
            case "oracle":
                oracle, task = self._world(request).adapter.oracle, await self._task(request)
                return await asyncio.to_thread(oracle, task)
            case unknown:
                raise ValueError(f"there is no operation {unknown!r}")

    def _world(self, request: Mapping[str, Any]) -> World:
        try:
            return self._worlds[request["world"]]
        except KeyError:
            raise LostError("the server does not know this world; open it again") from None

    async def _split(self, request: Mapping[str, Any]) -> Mapping[str, Task]:
        world, split = self._world(request), str(request["split"])
        async with self._building:
            if split not in world.tasks:
                tasks = await asyncio.to_thread(world.adapter.tasks, split)
                world.tasks[split] = {task.id: task for task in tasks}
        return world.tasks[split]

    async def _task(self, request: Mapping[str, Any]) -> Task:
        """The server's own task of that id; what a task holds is never taken from the wire."""
        tasks = await self._split(request)
        try:
            return tasks[request["task"]]
        except KeyError:
            raise EnvError(f"there is no task {request['task']!r} in split {request['split']!r}") from None

    async def _open(self, style: str, variant: Variant | None) -> dict[str, Any]:
        """Build a world, or find the one built before; its name is a digest of all that it is made of.

        Raises:
            ConfigError: the variant names code, which no server takes from a client.
        """
        if variant is not None and ":" in variant.name:
            raise ConfigError("partition.strategy", variant.name, "names code, which no server takes from a client")
        async with self._building:
            name = self._names.get(_asked(style, variant))
            if name not in self._worlds:
                adapter = await asyncio.to_thread(self.make, style, variant)
                name = await asyncio.to_thread(self.add, adapter, style, variant)
        adapter = self._worlds[name].adapter
        facts = {"name": adapter.name, "version": adapter.version, "fingerprint": adapter.fingerprint()}
        return {"world": name, "system_prompt": adapter.system_prompt(), **facts}

    def add(self, adapter: EnvAdapter, style: str, variant: Variant | None) -> str:
        """Keep a world under its name; the one kept longest makes room."""
        name = wire.world_of(adapter, style, variant)
        self._names[_asked(style, variant)], self._worlds[name] = name, World(adapter)
        if len(self._worlds) > MAX_WORLDS:
            del self._worlds[next(iter(self._worlds))]
            self._names = {asked: known for asked, known in self._names.items() if known in self._worlds}
        return name


def _asked(style: str, variant: Variant | None) -> str:
    return wire.encode({"style": style, "variant": wire.from_variant(variant)})


@dataclass(frozen=True, slots=True)
class Served:
    """A server that listens."""

    port: int
    digest: str
    """Of the standard world; see `wire.digest_of`."""


@asynccontextmanager
async def serving(make: Make, leases: Leases, *, host: str, port: int, token: str) -> AsyncIterator[Served]:
    """Serve an environment as long as the block runs; then end its episodes and connections.

    Args:
        make: builds the adapter; called once before anything listens, so that a wrong setting starts nothing.
        leases: the slots.
        host: address to listen on.
        port: port to listen on, 0 for any that is free.
        token: what every client must show.

    Raises:
        ConfigError: a setting that the environment refuses, or an address that cannot be bound.
    """
    adapter = await asyncio.to_thread(make, STANDARD, None)
    service = Service(make, leases)
    with blamed("env.name", adapter.name, "cannot be served"):
        facts = await asyncio.to_thread(_facts, adapter)
        service.add(adapter, STANDARD, None)

    def health() -> dict[str, Any]:
        return {**facts, "slots": leases.slots, "taken": leases.num_taken}

    server = await listen(service.handle, health, host=host, port=port, token=token)
    try:
        yield Served(port_of(server), facts["digest"])
    finally:
        server.close()
        await leases.aclose()
        await server.wait_closed()


def _facts(adapter: EnvAdapter) -> dict[str, Any]:
    """What `/health` says of the standard world."""
    return {
        "protocol": wire.PROTOCOL,
        "env": adapter.name,
        "digest": wire.digest_of(adapter),
        "splits": {split: len(tasks) for split, tasks in wire.splits_of(adapter).items()},
        "versions": {"env": adapter.version, "flwr-agent": _version(), "python": platform.python_version()},
    }


def _version() -> str:
    try:
        return version("flwr-agent")
    except PackageNotFoundError:
        return "a checkout"


def _kind(error: Exception) -> str:
    kinds = {BusyError: "busy", LostError: "lost", ConfigError: "config"}
    return next((kind for cls, kind in kinds.items() if isinstance(error, cls)), "env")
