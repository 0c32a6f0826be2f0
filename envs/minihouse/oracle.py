"""Solves a household by knowing where everything is."""

from __future__ import annotations

from envs.minihouse.rules import Rules
from envs.minihouse.tables import OPENABLE, TOOLS
from envs.minihouse.world import TREATMENTS, World, kind


def solve(world: World, rules: Rules = Rules()) -> list[str]:  # noqa: B008  frozen
    """An errand that fulfils the task with its last command, door by door.

    Example:
        >>> from envs.minihouse.world import generate
        >>> solve(generate("train-0"))[0].startswith("go to ")
        True
    """
    errand = _Errand(world, rules)
    wanted = [object_ for object_ in world.placement if kind(object_) == world.goal.object]
    if world.goal.type == "look_at_obj_in_light":
        errand.fetch(wanted[0])
        errand.light(wanted[0])
        return errand.commands
    treatment = TREATMENTS.get(world.goal.type)
    for object_ in wanted[: 2 if world.goal.type == "pick_two_obj_and_place" else 1]:
        errand.fetch(object_)
        if treatment:
            errand.treat(object_, treatment)
        errand.deliver(object_)
    errand.leave()
    return errand.commands


class _Errand:
    """The commands so far, with what they changed: where the agent is, which doors it opened, what it looked into."""

    def __init__(self, world: World, rules: Rules):
        self.commands: list[str] = []
        self._world = world
        self._rules = rules
        self._target = next((r for r in world.receptacles if kind(r) == world.goal.target), "")
        self._place: str | None = None
        self._open = set(world.opened)
        self._looked_at: set[str] = set()

    def fetch(self, object_: str) -> None:
        source = self._world.placement[object_]
        self._go(source)
        self._reach(source, is_look_needed=self._rules.needs_look)
        self.commands.append(f"take {object_} from {source}")

    def treat(self, object_: str, treatment: str) -> None:
        tool = next(r for r in self._world.receptacles if kind(r) == TOOLS[treatment])
        self._go(tool)
        self.commands.append(f"{treatment} {object_} with {tool}")

    def light(self, object_: str) -> None:
        if self._rules.goal_needs_look:
            self.commands.append(f"examine {object_}")
        lamp = next(o for o in self._world.placement if kind(o) == self._world.goal.target)
        self._go(self._world.placement[lamp])
        self.commands.append(f"use {lamp}")

    def deliver(self, object_: str) -> None:
        self._go(self._target)
        self._reach(self._target, is_look_needed=self._rules.goal_needs_look)
        self.commands.append(f"move {object_} to {self._target}")
        if self._rules.closes_itself:
            self._open.discard(self._target)

    def leave(self) -> None:
        if self._rules.goal_needs_shut and self._target in self._open:
            self.commands.append(f"close {self._target}")

    def _go(self, receptacle: str) -> None:
        if self._place != receptacle:
            self.commands.append(f"go to {receptacle}")
            self._place = receptacle

    def _reach(self, receptacle: str, *, is_look_needed: bool) -> None:
        """Open the door; where looking is needed and nothing was opened, examine."""
        if kind(receptacle) in OPENABLE and receptacle not in self._open:
            self.commands.append(f"open {receptacle}")
            self._open.add(receptacle)
            self._looked_at.add(receptacle)
        elif is_look_needed and receptacle not in self._looked_at:
            self.commands.append(f"examine {receptacle}")
            self._looked_at.add(receptacle)
