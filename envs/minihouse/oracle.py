"""Solves a household by knowing where everything is."""

from __future__ import annotations

from envs.minihouse.tables import OPENABLE, TOOLS
from envs.minihouse.world import TREATMENTS, World, kind


def solve(world: World) -> list[str]:
    """The shortest errand that fulfils the task, door by door.

    Example:
        >>> from envs.minihouse.world import generate
        >>> solve(generate("train-0"))[0].startswith("go to ")
        True
    """
    errand = _Errand(world)
    wanted = [object_ for object_ in world.placement if kind(object_) == world.goal.object]
    if world.goal.type == "look_at_obj_in_light":
        errand.fetch(wanted[0])
        lamp = next(object_ for object_ in world.placement if kind(object_) == world.goal.target)
        errand.go(world.placement[lamp])
        errand.commands.append(f"use {lamp}")
        return errand.commands
    target = next(receptacle for receptacle in world.receptacles if kind(receptacle) == world.goal.target)
    treatment = TREATMENTS.get(world.goal.type)
    for object_ in wanted[: 2 if world.goal.type == "pick_two_obj_and_place" else 1]:
        errand.fetch(object_)
        if treatment:
            errand.treat(object_, treatment)
        errand.go(target, to_reach_inside=True)
        errand.commands.append(f"move {object_} to {target}")
    return errand.commands


class _Errand:
    """The commands so far, with what they changed: where the agent is and which doors it opened."""

    def __init__(self, world: World):
        self.commands: list[str] = []
        self._world = world
        self._place: str | None = None
        self._opened = set(world.opened)

    def go(self, receptacle: str, *, to_reach_inside: bool = False) -> None:
        if self._place != receptacle:
            self.commands.append(f"go to {receptacle}")
            self._place = receptacle
        if to_reach_inside and kind(receptacle) in OPENABLE and receptacle not in self._opened:
            self.commands.append(f"open {receptacle}")
            self._opened.add(receptacle)

    def fetch(self, object_: str) -> None:
        source = self._world.placement[object_]
        self.go(source, to_reach_inside=True)
        self.commands.append(f"take {object_} from {source}")

    def treat(self, object_: str, treatment: str) -> None:
        tool = next(r for r in self._world.receptacles if kind(r) == TOOLS[treatment])
        self.go(tool)
        self.commands.append(f"{treatment} {object_} with {tool}")
