"""Plays ALFWorld games with TextWorld: `open_engine()` gives the fast engine, or the stock one for other versions.

Both answer with the same texts, commands and verdicts; success is `won`, never TextWorld's `done`.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping
from importlib.metadata import version
from typing import Any, Protocol

from envs.minihouse.episode import Scene

log = logging.getLogger(__name__)

TESTED = {"textworld": "1.7.0", "fast-downward-textworld": "20.6.4"}
"""Versions whose internals `envs.alfworld.fast` was compared with."""


class GameEngine(Protocol):
    """Plays one game at a time, synchronously."""

    def load(self, game: Mapping[str, Any]) -> Scene:
        """Start a game, given the content of its file."""
        ...

    def step(self, command: str) -> Scene:
        """Apply a command."""
        ...


def open_engine(*, is_stock: bool = False) -> GameEngine:
    """A fresh engine; the stock one if asked for, or if TextWorld is not of the version the caches were tested with."""
    found = {package: version(package) for package in TESTED}
    if not is_stock and found == TESTED:
        from envs.alfworld.fast import FastEngine

        return FastEngine()
    if not is_stock:
        log.warning("the fast engine was tested with %s, not %s; playing with the stock engine", TESTED, found)
    return StockEngine()


class StockEngine:
    """TextWorld as it is, with ALFWorld's names."""

    def __init__(self) -> None:
        from textworld import EnvInfos
        from textworld.envs.pddl.pddl import PddlEnv

        self._env: Any = PddlEnv(EnvInfos(won=True, admissible_commands=True))

    def load(self, game: Mapping[str, Any]) -> Scene:
        """Start a game, given the content of its file."""
        self._env.load(game)
        entities = self._env._entity_infos
        for id_, name in shown_names(entities).items():
            entities[id_].name = name
        return self._scene(self._env.reset())

    def step(self, command: str) -> Scene:
        """Apply a command."""
        return self._scene(self._env.step(command)[0])

    def _scene(self, state: Any) -> Scene:
        return Scene(state["feedback"], tuple(state["admissible_commands"]), bool(state["won"]))


def shown_names(ids: Iterable[str]) -> dict[str, str]:
    """Identifier -> name shown to the player, `cabinet 2`: the last identifier of a kind is number 1.

    Example:
        >>> shown_names(["mug_bar_01", "mug_bar_02", "sink_bar_01_bar_sinkbasin"])
        {'mug_bar_01': 'mug 2', 'mug_bar_02': 'mug 1', 'sink_bar_01_bar_sinkbasin': 'sinkbasin 1'}
    """
    kinds = {id_: _kind(id_) for id_ in sorted(ids)}
    left = Counter(kind for kind in kinds.values() if kind)
    names = {}
    for id_, kind in kinds.items():
        names[id_] = f"{kind} {left[kind]}" if kind else id_
        left[kind] -= 1
    return names


def _kind(id_: str) -> str:
    stem, bar, _ = id_.partition("_bar_")
    return stem + ("basin" if "basin" in id_ else "") if bar else ""
