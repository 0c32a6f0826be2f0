"""The process that plays: one JSON request a line on stdin, one JSON reply a line on stdout; it ends with its stdin.

Requests: `{"id", "slot", "world" | "game", "rules"}` starts a generated world or a game file under rules that differ
from ALFWorld's as listed; `{"id", "slot", "command"}` acts.
Replies: `{"id", "scene": [text, admissible, won]}`, or `{"id", "data_error": [path, field, fix]}`, or `{"id", "error"}`.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any

from envs.alfworld import games
from envs.alfworld.engine import GameEngine, open_engine
from envs.alfworld.rewrite import rewrite
from envs.minihouse.episode import Scene
from envs.minihouse.oracle import solve
from envs.minihouse.pddl import game as minihouse_game
from envs.minihouse.rules import Rules
from envs.minihouse.world import generate
from flwr_agent.errors import DataError


def generated(name: str) -> Mapping[str, Any]:
    """The game of a generated household, in the domain and grammar of the installed alfworld package."""
    spec = find_spec("alfworld")
    if spec is None or not spec.submodule_search_locations:
        raise DataError("alfworld", "package", "is not installed; pip install 'flwr-agent[alfworld]'")
    data = Path(spec.submodule_search_locations[0]) / "data"
    world = generate(name)
    domain, grammar = ((data / file).read_text(encoding="utf-8") for file in ("alfred.pddl", "alfred.twl2"))
    return json.loads(minihouse_game(world, domain, grammar, solve(world)))


class Slots:
    """The engines of this process, one per live episode; built once and reused."""

    def __init__(self) -> None:
        self._engines: dict[int, GameEngine] = {}

    def play(self, request: Mapping[str, Any]) -> Scene:
        """Do what one request asks."""
        slot = request["slot"]
        if slot not in self._engines:
            self._engines[slot] = open_engine()
        if "command" in request:
            return self._engines[slot].step(request["command"])
        return self._engines[slot].load(_game(request))


def _game(request: Mapping[str, Any]) -> Mapping[str, Any]:
    game = generated(request["world"]) if "world" in request else games.read(request["game"])
    rules = Rules(**request.get("rules", {}))
    return game if rules == Rules() else rewrite(game, rules, request.get("game", request.get("world")))


def answer(slots: Slots, request: Mapping[str, Any]) -> dict[str, Any]:
    """The reply to one request; whatever fails fails that request alone."""
    try:
        return {"id": request["id"], "scene": slots.play(request)}
    except DataError as error:
        return {
            "id": request["id"],
            "data_error": [error.path, error.field, str(error).removeprefix(f"{error.path}: {error.field}: ")],
        }
    except (Exception, SystemExit) as error:  # noqa: BLE001  the environment boundary; the translator exits on bad input
        return {"id": request["id"], "error": " ".join(f"{type(error).__name__}: {error}".split())}


def serve(requests: IO[str], replies: IO[str]) -> None:
    """Answer every request until there are no more."""
    slots = Slots()
    for line in requests:
        replies.write(json.dumps(answer(slots, json.loads(line))) + "\n")
        replies.flush()


def main() -> None:
    """Serve on stdin and stdout; what the planner prints goes to stderr."""
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as replies:
        os.dup2(2, 1)
        serve(sys.stdin, replies)


if __name__ == "__main__":
    main()
