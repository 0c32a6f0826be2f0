"""The client's end of a served environment: one server's address, its sync requests, and one episode's connection."""

from __future__ import annotations

import asyncio
import itertools
import random
import secrets
import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import Any

import requests
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import WebSocketException
from websockets.sync import client as blocking

from envs.base import Step, Task
from envs.places import unreached
from envs.remote import wire
from envs.remote.leases import BusyError, LostError
from flwr_agent.errors import AgentError, ConfigError, EnvError

MAX_BYTES = 16 * wire.MAX_BYTES
CLOSE_S = 5.0
"""Seconds spent on telling a server that an episode is over; it finds out by itself later."""
MAX_FAILURES = 8
"""Connections that may break or be refused while one request is repeated."""
_OPTIONS: dict[str, Any] = {
    "compression": None,
    "ping_interval": None,
    "proxy": None,
    "max_size": MAX_BYTES,
    "close_timeout": 1.0,
}
_BROKEN = (OSError, EOFError, WebSocketException)
"""What a broken or refused connection raises; `TimeoutError` is an OSError."""


class Server:
    """One server, by its address and token; blocking requests share one connection.

    Args:
        url: `http://host:port`, or `https` behind a proxy that ends TLS.
        token: what the server asks for.
        timeout_s: seconds a request may take, its repetitions included.
    """

    def __init__(self, url: str, token: str, *, timeout_s: float):
        self.url, self.timeout_s = url, timeout_s
        self.headers = {"Authorization": f"Bearer {token}"}
        self.address = f"ws{url.removeprefix('http').rstrip('/')}/ws"
        self._lock = threading.Lock()
        self._connection: blocking.ClientConnection | None = None
        self._open = ExitStack()
        weakref.finalize(self, self._open.close)

    def health(self) -> Mapping[str, Any]:
        """What the server says of itself.

        Raises:
            EnvError: it cannot be reached.
            ConfigError: it refuses the token, or is no environment server of this version.
        """
        with requests.Session() as session:
            session.trust_env = False
            try:
                address = f"{self.url.rstrip('/')}/health"
                response = session.get(address, headers=self.headers, timeout=(CLOSE_S, self.timeout_s))
            except requests.RequestException as error:
                raise EnvError(f"{self.url} cannot be reached: {unreached(error)}") from error
        if response.status_code == requests.codes.unauthorized:
            raise ConfigError(
                "env.token_file", self.url, "the server refuses this token; give the file it was started with"
            )
        try:
            facts = wire.decode(response.content)
        except ValueError:
            facts = {}
        if "protocol" not in facts or "digest" not in facts:
            raise ConfigError("env.url", self.url, "is no server of `python -m flwr_agent serve`; correct the address")
        if facts["protocol"] != wire.PROTOCOL:
            fix = f"speaks protocol {facts['protocol']}, this client {wire.PROTOCOL}; serve with this version of flwr-agent"
            raise ConfigError("env.url", self.url, fix)
        return facts

    def call(self, op: str, **fields: Any) -> Any:
        """The result of a request that changes nothing; repeated once on a new connection.

        Raises:
            ConfigError: the server's environment refuses a setting.
            EnvError: it failed, or the server cannot be reached.
        """
        frame = wire.encode({"op": op, **fields})
        with self._lock:
            try:
                reply = self._exchange(frame)
            except _BROKEN:
                reply = self._exchange_anew(frame)
        return result_of(wire.decode(reply))

    def close(self) -> None:
        """Close the connection of the blocking requests, if there is one."""
        self._connection = None
        self._open.close()

    def _exchange_anew(self, frame: str) -> str | bytes:
        self.close()
        try:
            return self._exchange(frame)
        except _BROKEN as error:
            raise EnvError(f"{self.url} cannot be reached: {error}") from error

    def _exchange(self, frame: str) -> str | bytes:
        connection = self._connection
        if connection is None:
            opening = blocking.connect(
                self.address, additional_headers=self.headers, open_timeout=self.timeout_s, **_OPTIONS
            )
            connection = self._connection = self._open.enter_context(opening)
        connection.send(frame)
        return connection.recv(timeout=self.timeout_s)


class RemoteEnv:
    """One episode on one of several servers that serve the same world.

    Every request is numbered and repeated until it is answered, so a connection that breaks costs nothing. An episode
    that cannot begin on one server begins on the next.
    """

    def __init__(self, servers: Sequence[Server], opening: Mapping[str, Any], world: str):
        self._servers = itertools.cycle(servers)
        self._server = next(self._servers)
        self._opening, self._world = opening, world
        self._episode, self._seq = "", 0
        self._connection: ClientConnection | None = None

    async def reset(self, task: Task, *, seed: int) -> Step:
        """Begin a new episode; the one before it is closed.

        Raises:
            EnvError: no server begins it.
        """
        await self.close()
        self._episode, self._seq = secrets.token_hex(16), 0
        fields = {"world": self._world, "split": task.split, "task": task.id, "seed": seed}
        return wire.to_step(await self._ask("reset", **fields))

    async def step(self, action: str) -> Step:
        """Apply one action, once.

        Raises:
            EnvError: the environment failed, or the server lost the episode.
        """
        self._seq += 1
        return wire.to_step(await self._ask("step", seq=self._seq, action=action))

    async def close(self) -> None:
        """Give the slot back and close the connection; what goes wrong on the way is the server's to clean up."""
        with suppress(AgentError, TimeoutError):
            async with asyncio.timeout(CLOSE_S):
                if self._episode:
                    await self._ask("close")
        self._episode = ""
        if self._connection:
            self._connection.transport.abort()
            self._connection = None

    async def _ask(self, op: str, **fields: Any) -> Any:
        frame = wire.encode({"op": op, "episode": self._episode, **fields})
        num_failures, pauses = 0, _pauses(self._episode)
        try:
            async with asyncio.timeout(self._server.timeout_s):
                while True:
                    try:
                        return await self._exchange(frame)
                    except BusyError:
                        await asyncio.sleep(next(pauses))
                    except LostError:
                        if op != "reset":
                            raise
                        await self._reopen()
                    except _BROKEN as error:
                        num_failures += 1
                        if num_failures == MAX_FAILURES:
                            raise EnvError(f"{self._server.url}: {type(error).__name__}: {error}") from error
                        if op == "reset":
                            self._server = next(self._servers)
                        await asyncio.sleep(next(pauses))
        except TimeoutError as error:
            raise EnvError(f"{self._server.url} did not {op} in {self._server.timeout_s:g} s") from error

    async def _reopen(self) -> None:
        """Let a server that has been started anew build the world again; another world is refused."""
        found = await self._exchange(wire.encode({"op": "open", **self._opening}))
        if found["world"] != self._world:
            raise EnvError(f"{self._server.url} serves another environment than before; start the run again")

    async def _exchange(self, frame: str) -> Any:
        """One request and its answer; a connection is used again only after a whole exchange."""
        connection, self._connection = self._connection, None
        try:
            async with asyncio.timeout(self._server.timeout_s / 3):
                if connection is None:
                    connection = await connect(
                        self._server.address, additional_headers=self._server.headers, **_OPTIONS
                    )
                await connection.send(frame)
                reply = await connection.recv()
            self._connection = connection
        finally:
            if connection and not self._connection:
                connection.transport.abort()
        return result_of(wire.decode(reply))


def result_of(reply: Mapping[str, Any]) -> Any:
    """What a reply holds.

    Raises:
        ConfigError, BusyError, LostError, EnvError: what it says went wrong.
    """
    if "ok" in reply:
        return reply["ok"]
    kind, message = reply.get("error"), str(reply.get("message"))
    if kind == "config":
        raise ConfigError("env.url", "remote", message)
    raise {"busy": BusyError, "lost": LostError}.get(str(kind), EnvError)(message)


def _pauses(key: str) -> Iterator[float]:
    """Seconds between repetitions: doubled each time up to five, with a jitter of the episode's own."""
    draw = random.Random(key)
    for number in itertools.count():
        yield min(0.1 * 2**number, 5.0) * draw.uniform(0.5, 1.0)
