"""Generates households with a task: every game is a pure function of its name.

A scene (a numbered room) has a fixed set of receptacles; a game adds objects, open doors and a goal to a scene.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from envs.minihouse.tables import NUM_SCENES, OBJECTS, OPENABLE, ROOMS, TOOLS, Room
from flwr_agent.seeds import seed_for

TYPES = (
    "pick_and_place_simple",
    "look_at_obj_in_light",
    "pick_clean_then_place_in_recep",
    "pick_heat_then_place_in_recep",
    "pick_cool_then_place_in_recep",
    "pick_two_obj_and_place",
)
"""The six task types; their order is part of every game's name."""

TREATMENTS = {TYPES[2]: "clean", TYPES[3]: "heat", TYPES[4]: "cool"}
"""Task type -> what must be done to the object before it is put away."""

OPEN_SHARE = 0.1
"""Share of openable receptacles that stand open at the start."""


@dataclass(frozen=True, slots=True)
class Goal:
    """What is to be done.

    Example:
        >>> Goal(TYPES[3], "egg", "countertop").text
        'put a hot egg in countertop'
    """

    type: str
    """One of `TYPES`."""
    object: str
    """Object kind to be brought or looked at."""
    target: str
    """Receptacle kind it is brought to; for `look_at_obj_in_light` the kind of lamp."""

    @property
    def text(self) -> str:
        """The task sentence, without a full stop."""
        if self.type == "look_at_obj_in_light":
            return f"look at {self.object} under the {self.target}"
        if self.type == "pick_two_obj_and_place":
            return f"put two {self.object} in {self.target}"
        state = {"clean": "clean ", "heat": "hot ", "cool": "cool "}.get(TREATMENTS.get(self.type, ""), "")
        return f"put a {state}{self.object} in {self.target}"


@dataclass(frozen=True, slots=True)
class World:
    """A household at the start of a game. Things are named by kind and number: `cabinet 3`, `egg 1`.

    Example:
        >>> world = generate("train-3")
        >>> world.goal.type
        'pick_heat_then_place_in_recep'
    """

    name: str
    scene: int
    """Room number, as in ALFRED: kitchens 1-30, living rooms 201-230, bedrooms 301-330, bathrooms 401-430."""
    goal: Goal
    receptacles: tuple[str, ...]
    """All receptacles in listing order."""
    placement: Mapping[str, str]
    """Object -> the receptacle it is in or on, in listing order of the objects."""
    opened: tuple[str, ...]
    """Openable receptacles that stand open, in listing order."""


def kind(name: str) -> str:
    """Kind of a thing: `kind("cabinet 3") == "cabinet"`."""
    return name.partition(" ")[0]


def listing_order(name: str) -> tuple[str, int]:
    """Sort key of every list that is shown: kinds alphabetically, numbers falling."""
    kind_, _, number = name.partition(" ")
    return kind_, -int(number)


@functools.cache
def scene_receptacles(scene: int) -> tuple[str, ...]:
    """The receptacles of a scene in listing order; the same in every game that plays there."""
    draw = random.Random(seed_for("minihouse", "scene", scene))
    counts = {kind_: draw.randint(*span) for kind_, span in _room(scene).receptacles.items()}
    return _numbered(counts)


def goal(name: str) -> tuple[int, Goal]:
    """`(scene, goal)` of a game, without building the rest of its household.

    The trailing number of the name gives the type in turn, so that every run of six games holds every type.
    """
    draw = random.Random(seed_for("minihouse", "goal", name))
    type_ = TYPES[int(name.rpartition("-")[2]) % len(TYPES)]
    scene = draw.choice(_scenes(type_))
    subject, targets = draw.choice(_subjects(type_, scene))
    return scene, Goal(type_, subject, draw.choice(targets))


@functools.lru_cache(maxsize=4096)
def generate(name: str) -> World:
    """The game called `name`, e.g. `train-17`; always solvable and never solved at the start."""
    scene, goal_ = goal(name)
    receptacles = scene_receptacles(scene)
    draw = random.Random(seed_for("minihouse", "world", name))
    counts = {kind_: draw.choice((0, 1, 1, 2, 3)) for kind_ in _room(scene).objects}
    counts[goal_.object] = draw.randint(2 if goal_.type == "pick_two_obj_and_place" else 1, 3)
    counts |= {kind_: int(kind_ == goal_.target) for kind_ in counts if _is_lamp(kind_)}
    placement = {}
    for object_ in _numbered(counts):
        avoided = goal_.target if kind(object_) == goal_.object else ""
        spots = [r for r in receptacles if kind(r) in OBJECTS[kind(object_)].holders and kind(r) != avoided]
        if spots:
            placement[object_] = draw.choice(spots)
    opened = tuple(r for r in receptacles if kind(r) in OPENABLE and draw.random() < OPEN_SHARE)
    return World(name, scene, goal_, receptacles, placement, opened)


@functools.cache
def _scenes(type_: str) -> tuple[int, ...]:
    """Scenes where a task of this type can be set."""
    scenes = (room.base + number for room in ROOMS.values() for number in range(1, NUM_SCENES + 1))
    return tuple(scene for scene in scenes if _subjects(type_, scene))


@functools.cache
def _subjects(type_: str, scene: int) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """`(object kind, target kinds)` of every errand of this type that the scene allows."""
    objects = _room(scene).objects
    kinds = frozenset(kind(receptacle) for receptacle in scene_receptacles(scene))
    errands = ((o, _targets(type_, o, objects, kinds)) for o in objects if not _is_lamp(o))
    return tuple((subject, targets) for subject, targets in errands if targets)


def _targets(type_: str, subject: str, objects: Sequence[str], kinds: frozenset[str]) -> tuple[str, ...]:
    """Kinds that can be the target, such that the object can also stand somewhere else at the start."""
    holders = sorted(OBJECTS[subject].holders & kinds)
    if type_ == "look_at_obj_in_light":
        return tuple(o for o in objects if _is_lamp(o) and holders and OBJECTS[o].holders & kinds)
    treatment = TREATMENTS.get(type_)
    tool = TOOLS.get(treatment or "")
    if treatment and (tool not in kinds or treatment not in OBJECTS[subject].abilities):
        return ()
    return tuple(h for h in holders if len(holders) > 1 and h != tool)


def _is_lamp(object_kind: str) -> bool:
    return "light" in OBJECTS[object_kind].abilities


def _room(scene: int) -> Room:
    return next(room for room in ROOMS.values() if 0 < scene - room.base <= NUM_SCENES)


def _numbered(counts: Mapping[str, int]) -> tuple[str, ...]:
    return tuple(f"{kind_} {number}" for kind_ in sorted(counts) for number in range(counts[kind_], 0, -1))
