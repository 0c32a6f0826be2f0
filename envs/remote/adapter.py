"""The adapter of an environment that other processes or hosts serve."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from envs import places
from envs.base import Task, Variant, View
from envs.remote import tokens, wire
from envs.remote.client import RemoteEnv, Server
from envs.remote.leases import LostError
from flwr_agent.errors import ConfigError, EnvError

ANY = "any"

logger = logging.getLogger(__name__)


class Remote:
    """An environment behind one URL or several; its episodes are spread over them.

    Servers are asked for their digest before anything else: they must serve the same environment, and the one that
    `digest` names. Tasks and prompts come from them, so nothing of the environment is installed here.

    Example:
        >>> env = Remote(url="http://127.0.0.1:24680")  # doctest: +SKIP
        >>> env.name  # doctest: +SKIP
        'webshop'
    """

    def __init__(
        self,
        *,
        url: str = "none",
        token_file: str = tokens.AUTO,
        digest: str = ANY,
        timeout_s: float = 300.0,
        style: str = "paper",
        variant: Variant | None = None,
    ):
        self.servers = [_server(address, token_file, timeout_s) for address in url.split(",")]
        self._opening = {"style": style, "variant": wire.from_variant(variant)}
        opened = _reachable(self.servers, digest)[0].call("open", **self._opening)
        self.name, self.version = str(opened["name"]), str(opened["version"])
        self._world, self._prompt, self._fingerprint = opened["world"], opened["system_prompt"], opened["fingerprint"]
        self._tasks: dict[str, tuple[Task, ...]] = {}
        self._turns = itertools.count()

    def tasks(self, split: str) -> Sequence[Task]:
        """All tasks of a split, in the server's order."""
        if split not in self._tasks:
            found: list[Task] = []
            total = 1
            while len(found) < total:
                page = self._call("tasks", split=split, start=len(found))
                found += [Task(id_, split, meta) for id_, meta in page["tasks"]]
                total = page["total"]
            self._tasks[split] = tuple(found)
        return self._tasks[split]

    def system_prompt(self) -> str:
        """The server's."""
        return str(self._prompt)

    def render(self, view: View) -> str:
        """The server's prompt for a view."""
        return str(self._call("render", view=wire.from_view(view)))

    def parse_action(self, model_text: str) -> tuple[str, bool]:
        """The server's reading of an answer."""
        action, is_valid = self._call("parse", text=model_text)
        return action, is_valid

    def make(self) -> RemoteEnv:
        """An episode on the next server in turn."""
        first = next(self._turns) % len(self.servers)
        return RemoteEnv([*self.servers[first:], *self.servers[:first]], self._opening, self._world)

    def oracle(self, task: Task) -> Sequence[str] | None:
        """The server's."""
        found: list[str] | None = self._call("oracle", split=task.split, task=task.id)
        return found

    def fingerprint(self) -> str:
        """The served environment's own: equal to that of the same environment in this process."""
        return str(self._fingerprint)

    def close(self) -> None:
        """Close the connections of tasks and prompts; they are opened again when needed."""
        for server in self.servers:
            server.close()

    def _call(self, op: str, **fields: Any) -> Any:
        """The answer of the first server that gives one."""
        failures: list[EnvError] = []
        for server in self.servers:
            try:
                return self._call_one(server, op, fields)
            except EnvError as error:
                failures.append(error)
        raise failures[0]

    def _call_one(self, server: Server, op: str, fields: Mapping[str, Any]) -> Any:
        try:
            return server.call(op, world=self._world, **fields)
        except LostError:
            if server.call("open", **self._opening)["world"] != self._world:
                raise EnvError(f"{server.url} serves another environment than before; start the run again") from None
            return server.call(op, world=self._world, **fields)


def _server(url: str, token_file: str, timeout_s: float) -> Server:
    url = url.strip()
    places.address("env.url", url, "give http://HOST:PORT, or several with commas, of `python -m flwr_agent serve`")
    return Server(url, tokens.read(token_file, url), timeout_s=timeout_s)


def _reachable(servers: Sequence[Server], digest: str) -> list[Server]:
    """The servers that answer; all of them serve one environment, and the demanded one.

    Raises:
        ConfigError: none answers, two differ, or one has another digest than the demanded one.
    """
    found: list[Server] = []
    reasons: list[str] = []
    for server in servers:
        try:
            served = server.health()["digest"]
        except EnvError as error:
            reasons.append(str(error))
            continue
        found.append(server)
        if digest not in (ANY, served):
            fix = f"{server.url} serves {served}; serve the environment that was asked for, or set env.digest={ANY}"
            raise ConfigError("env.digest", digest, fix)
        digest = served
    if not found:
        fix = f"{'; '.join(reasons)}; start one (`python -m flwr_agent serve`), or correct the address"
        raise ConfigError("env.url", ",".join(server.url for server in servers), fix)
    for reason in reasons:
        logger.warning("%s; the other servers play without it", reason)
    return found
