"""Makes the solution that is stored with a game fit a household of other rules."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from envs.alfworld.engine import shown_names
from envs.minihouse.rules import Rules

_TAKE = re.compile(r"take (.+) from (.+)")
_PUT = re.compile(r"(?:move .+ to|put .+ in/on) (.+)")


def opened(problem: str) -> set[str]:
    """Shown names of the receptacles that stand open at the start of a game, by its `pddl_problem`.

    Example:
        >>> opened("(:init (openable fridge_bar_1) (opened fridge_bar_1)) (:goal (x))")
        {'fridge 1'}
    """
    start = problem.partition("(:goal")[0].lower()
    names = shown_names(set(re.findall(r"\w+_bar_\w+", start)))
    return {names[id_] for id_ in re.findall(r"\(opened\s+(\w+)\s*\)", start)}


def adapted(
    commands: Iterable[str], rules: Rules, *, is_light: bool = False, opened: Collection[str] = ()
) -> list[str]:
    """`commands` with what `rules` ask for besides: looks before taking and serving, doors opened again and shut.

    Args:
        commands: a solution under ALFWorld's own rules, in either vocabulary.
        rules: the household's.
        is_light: whether the task is to look at something under a lamp.
        opened: receptacles that stand open at the start.

    Example:
        >>> adapted(["go to desk 1", "take mug 1 from desk 1"], Rules(needs_look=True))
        ['go to desk 1', 'examine desk 1', 'take mug 1 from desk 1']
    """
    errand = _Errand(rules, is_light, opened)
    for command in commands:
        errand.follow(command)
    return errand.end()


class _Errand:
    """The commands so far, which doors stand open, and what was looked into."""

    def __init__(self, rules: Rules, is_light: bool, opened: Collection[str]):
        self._rules, self._is_light = rules, is_light
        self._commands: list[str] = []
        self._doors, self._open = set(opened), set(opened)
        self._looked_at: set[str] = set()
        self._target = ""

    def follow(self, command: str) -> None:
        if found := _TAKE.fullmatch(command):
            self._take(command, found[1], found[2])
        elif found := _PUT.fullmatch(command):
            self._put(command, found[1])
        elif command.startswith("open "):
            self._open_door(command.removeprefix("open "))
        elif command.startswith("close "):
            self._close(command.removeprefix("close "))
        else:
            self._commands.append(command)

    def end(self) -> list[str]:
        if self._rules.goal_needs_shut and not self._is_light:
            self._close(self._target)
        return self._commands

    def _take(self, command: str, object_: str, receptacle: str) -> None:
        self._reach(receptacle, is_look_needed=self._rules.needs_look)
        self._commands.append(command)
        if self._is_light and self._rules.goal_needs_look:
            self._commands.append(f"examine {object_}")

    def _put(self, command: str, receptacle: str) -> None:
        self._reach(receptacle, is_look_needed=self._rules.goal_needs_look and not self._is_light)
        self._commands.append(command)
        self._target = receptacle
        if self._rules.closes_itself:
            self._open.discard(receptacle)

    def _reach(self, receptacle: str, *, is_look_needed: bool) -> None:
        if receptacle in self._doors:
            self._open_door(receptacle)
        if is_look_needed and receptacle not in self._looked_at:
            self._looked_at.add(receptacle)
            self._commands.append(f"examine {receptacle}")

    def _open_door(self, receptacle: str) -> None:
        self._doors.add(receptacle)
        if receptacle not in self._open:
            self._open.add(receptacle)
            self._looked_at.add(receptacle)
            self._commands.append(f"open {receptacle}")

    def _close(self, receptacle: str) -> None:
        if receptacle in self._open:
            self._open.discard(receptacle)
            self._commands.append(f"close {receptacle}")
