"""Writes a household as a planning problem and as an ALFWorld game file, so that TextWorld can play it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable

from envs.minihouse.tables import OBJECTS, OPENABLE
from envs.minihouse.world import TREATMENTS, World, kind

_ALWAYS_DECLARED = {"KnifeType - otype", "ButterKnifeType - otype"} | {
    f"{name} - rtype" for name in ("SinkBasinType", "MicrowaveType", "FridgeType")
}
"""Type names that ALFWorld's domain uses without declaring them."""

_STATES = {"clean": ("isClean", "cleanable"), "heat": ("isHot", "heatable"), "cool": ("isCool", "coolable")}
_ABILITIES = {"clean": "cleanable", "heat": "heatable", "cool": "coolable", "slice": "sliceable", "light": "toggleable"}
_CAMEL = {"sinkbasin": "SinkBasin", "butterknife": "ButterKnife"}


def problem(world: World) -> str:
    """The PDDL problem of a household, in ALFWorld's domain; every receptacle has a location of its own.

    Example:
        >>> from envs.minihouse.world import generate
        >>> problem(generate("train-0")).splitlines()[0]
        '(define (problem train-0) (:domain alfred)'
    """
    ids = identifiers(world)
    lines = [
        f"(define (problem {world.name}) (:domain alfred)",
        f"(:objects {' '.join(sorted(_declared(world, ids)))})",
        "(:init (= (total-cost) 0) (atLocation agent1 loc_bar_0)",
        *_receptacle_facts(world, ids),
        *_object_facts(world, ids),
        *_containment(world),
        f") (:goal {_goal(world)}))",
    ]
    return "\n".join(lines)


def game(world: World, domain: str, grammar: str, walkthrough: Iterable[str]) -> str:
    """The text of a `game.tw-pddl` file, given ALFWorld's domain and its grammar with an unknown goal."""
    fields = {
        "pddl_domain": domain,
        "grammar": grammar.replace("UNKNOWN GOAL", world.goal.text),
        "pddl_problem": problem(world),
        "solvable": True,
        "walkthrough": list(walkthrough),
    }
    return json.dumps(fields)


def identifiers(world: World) -> dict[str, str]:
    """Name -> PDDL identifier. TextWorld numbers the identifiers of a kind from the last, in sorted order, upwards."""
    names = [*world.receptacles, *world.placement]
    counts = Counter(map(kind, names))
    ids = {}
    for name in names:
        kind_, _, number = name.partition(" ")
        rank = counts[kind_] - int(number) + 1
        stem, basin, _ = kind_.partition("basin")
        ids[name] = f"{_camel(stem)}_bar_{rank:02d}" + (f"_bar_{_camel(kind_)}" if basin else "")
    return ids


def _camel(kind_: str) -> str:
    return _CAMEL.get(kind_, kind_.capitalize())


def _type(kind_: str) -> str:
    return f"{_camel(kind_)}Type"


def _declared(world: World, ids: dict[str, str]) -> set[str]:
    declared = set(_ALWAYS_DECLARED) | {"agent1 - agent", "loc_bar_0 - location"}
    for number, receptacle in enumerate(world.receptacles, 1):
        declared |= {f"{ids[receptacle]} - receptacle", f"{_type(kind(receptacle))} - rtype"}
        declared.add(f"loc_bar_{number} - location")
    for object_ in world.placement:
        declared |= {f"{ids[object_]} - object", f"{_type(kind(object_))} - otype"}
    return declared


def _receptacle_facts(world: World, ids: dict[str, str]) -> Iterable[str]:
    for number, receptacle in enumerate(world.receptacles, 1):
        id_ = ids[receptacle]
        yield f"(receptacleType {id_} {_type(kind(receptacle))}) (receptacleAtLocation {id_} loc_bar_{number})"
        if kind(receptacle) in OPENABLE:
            yield f"(openable {id_})" + (f" (opened {id_})" if receptacle in world.opened else "")


def _object_facts(world: World, ids: dict[str, str]) -> Iterable[str]:
    location = {receptacle: f"loc_bar_{number}" for number, receptacle in enumerate(world.receptacles, 1)}
    for object_, receptacle in world.placement.items():
        id_, abilities = ids[object_], OBJECTS[kind(object_)].abilities
        yield f"(objectType {id_} {_type(kind(object_))}) (inReceptacle {id_} {ids[receptacle]})"
        yield f"(objectAtLocation {id_} {location[receptacle]})"
        if "light" not in abilities:
            yield f"(pickupable {id_})"
        yield from (f"({_ABILITIES[ability]} {id_})" for ability in sorted(abilities))


def _containment(world: World) -> Iterable[str]:
    receptacle_kinds = sorted({kind(receptacle) for receptacle in world.receptacles})
    for object_kind in sorted({kind(object_) for object_ in world.placement}):
        for holder in receptacle_kinds:
            if holder in OBJECTS[object_kind].holders:
                yield f"(canContain {_type(holder)} {_type(object_kind)})"


def _goal(world: World) -> str:
    goal = world.goal
    wanted, target = _type(goal.object), _type(goal.target)
    if goal.type == "look_at_obj_in_light":
        return (
            f"(exists (?o - object ?lamp - object ?r - receptacle ?l - location ?a - agent) (and (objectType ?o {wanted})"
            f" (holds ?a ?o) (objectType ?lamp {target}) (toggleable ?lamp) (isToggled ?lamp) (inReceptacle ?lamp ?r)"
            " (receptacleAtLocation ?r ?l) (atLocation ?a ?l)))"
        )
    place = f"(receptacleType ?r {target})"
    first = f"(objectType ?o {wanted}) (inReceptacle ?o ?r)"
    if goal.type == "pick_two_obj_and_place":
        second = f"(objectType ?o2 {wanted}) (inReceptacle ?o2 ?r) (not (= ?o ?o2))"
        return f"(exists (?r - receptacle ?o - object ?o2 - object) (and {place} {first} {second}))"
    state, ability = _STATES.get(TREATMENTS.get(goal.type, ""), ("", ""))
    treated = f" ({ability} ?o) ({state} ?o)" if state else ""
    return f"(exists (?r - receptacle ?o - object) (and {place} {first}{treated}))"
