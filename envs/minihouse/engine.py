"""The text engine of a household: which commands are legal now, what each answers and changes, and whether it is won.

Rules and texts are those of ALFWorld's TextWorld games for worlds with one receptacle per place and no object inside
another object; the conformance tests compare the two step by step. Rules that surprise: a tool works with its door
shut, a lamp inside a shut receptacle can be used, and an object can be examined only while it is held.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from envs.minihouse.rules import Rules
from envs.minihouse.tables import KNIVES, OBJECTS, OPENABLE, TOOLS
from envs.minihouse.world import TREATMENTS, World, kind, listing_order

NOTHING_HAPPENS = "Nothing happens."
"""Answer to every command that is not legal now."""

HELP = """
Commands (X is a place, O is an object):
  look, inventory, examine X or O, go to X, open X, close X,
  take O from X, move O to X, use O, clean O with X, heat O with X, cool O with X, slice O with O
"""

PARAPHRASES = {
    "You arrive at": "You walk over to",
    "You open": "You pull open",
    "You close": "You shut",
    "You pick up": "You grab",
    "You move": "You carry",
}
"""Beginnings of answers -> what they are in a paraphrased household."""

_MARK = {"clean": "clean", "heat": "hot", "cool": "cool"}


class House:
    """One game in play; not reusable.

    Example:
        >>> from envs.minihouse.world import generate
        >>> house = House(generate("train-0"))
        >>> house.step("fly away")
        'Nothing happens.'
    """

    def __init__(self, world: World, rules: Rules = Rules()):  # noqa: B008  frozen
        self._world = world
        self._rules = rules
        self._inside: dict[str, list[str]] = {receptacle: [] for receptacle in world.receptacles}
        for object_, receptacle in world.placement.items():
            self._inside[receptacle].append(object_)
        self._open = set(world.opened)
        self._marks: dict[str, set[str]] = {object_: set() for object_ in world.placement}
        self._place: str | None = None
        self._held: str | None = None
        self._lit: set[str] = set()
        self._looked_at: set[str] = set()
        self._targets = tuple(r for r in world.receptacles if kind(r) == world.goal.target)
        self._always: dict[str, Callable[[], str]] = {
            "look": self._look,
            "inventory": self._inventory,
            "help": lambda: HELP,
            **{f"go to {receptacle}": partial(self._go, receptacle) for receptacle in world.receptacles},
        }
        self._legal = self._commands()

    def intro(self) -> str:
        """The first text: welcome, the room's receptacles, the task."""
        seen = _listed(self._world.receptacles)
        room = f"You are in the middle of a room. Looking quickly around you, you see {seen}."
        parts = ["-= Welcome to TextWorld, ALFRED! =-", room, f"Your task is to: {self._world.goal.text}."]
        return "\n\n".join(parts[::2] if self._rules.is_blind else parts)

    def admissible(self) -> tuple[str, ...]:
        """Every legal command, sorted."""
        return tuple(sorted(self._legal))

    def step(self, command: str) -> str:
        """The answer to `command`; a command that is not legal changes nothing."""
        action = self._legal.get(command.strip())
        if action is None:
            return NOTHING_HAPPENS
        text = action()
        self._legal = self._commands()
        return text

    @property
    def is_won(self) -> bool:
        """Whether the goal holds now."""
        if self._world.goal.type == "look_at_obj_in_light":
            return self._is_lit()
        return any(map(self._is_served, self._targets))

    def _is_lit(self) -> bool:
        goal, held = self._world.goal, self._held
        if held is None or kind(held) != goal.object or (self._rules.goal_needs_look and held not in self._looked_at):
            return False
        here = self._inside[self._place] if self._place else ()
        return any(o in self._lit and kind(o) == goal.target for o in here)

    def _is_served(self, receptacle: str) -> bool:
        """Whether this receptacle holds what the task wants in it."""
        goal = self._world.goal
        mark = _MARK.get(TREATMENTS.get(goal.type, ""))
        found = [o for o in self._inside[receptacle] if kind(o) == goal.object and (not mark or mark in self._marks[o])]
        if len(found) < (2 if goal.type == "pick_two_obj_and_place" else 1):
            return False
        if self._rules.goal_needs_look and receptacle not in self._looked_at:
            return False
        return not (self._rules.goal_needs_shut and receptacle in self._open)

    def _commands(self) -> dict[str, Callable[[], str]]:
        """Legal command -> what it does; stepping is a look-up in this table."""
        legal = dict(self._always)
        if self._place is not None:
            del legal[f"go to {self._place}"]
            self._add_place_commands(legal, self._place)
        if self._held is not None:
            legal[f"examine {self._held}"] = partial(self._describe, self._held)
            if self._place is not None:
                self._add_held_commands(legal, self._place, self._held)
        return legal

    def _add_place_commands(self, legal: dict[str, Callable[[], str]], place: str) -> None:
        legal[f"examine {place}"] = partial(self._examine, place)
        if kind(place) in OPENABLE:
            verb, action = ("close", self._close) if place in self._open else ("open", self._open_door)
            legal[f"{verb} {place}"] = partial(action, place)
        for object_ in self._inside[place]:
            if "light" in OBJECTS[kind(object_)].abilities:
                legal[f"use {object_}"] = partial(self._use, object_)
            elif self._held is None and self._is_reachable(place):
                legal[f"take {object_} from {place}"] = partial(self._take, object_, place)

    def _add_held_commands(self, legal: dict[str, Callable[[], str]], place: str, held: str) -> None:
        abilities, holders = OBJECTS[kind(held)].abilities, OBJECTS[kind(held)].holders
        if not self._is_shut(place) and kind(place) in holders:
            legal[f"move {held} to {place}"] = partial(self._move, held, place)
        for verb, tool in TOOLS.items():
            if tool == kind(place) and verb in abilities:
                legal[f"{verb} {held} with {place}"] = partial(self._treat, verb, held, place)
        if kind(held) in KNIVES:
            for object_ in self._inside[place]:
                if "slice" in OBJECTS[kind(object_)].abilities:
                    legal[f"slice {object_} with {held}"] = partial(self._slice, object_, held)

    def _is_shut(self, receptacle: str) -> bool:
        return kind(receptacle) in OPENABLE and receptacle not in self._open

    def _is_reachable(self, receptacle: str) -> bool:
        is_known = receptacle in self._looked_at or not self._rules.needs_look
        return is_known and not self._is_shut(receptacle)

    def _examine(self, receptacle: str) -> str:
        self._looked_at.add(receptacle)
        return self._contents(receptacle)

    def _contents(self, receptacle: str) -> str:
        if self._is_shut(receptacle):
            return f"The {receptacle} is closed."
        seen = _listed(self._inside[receptacle])
        if kind(receptacle) in OPENABLE:
            return f"The {receptacle} is open. In it, you see {seen}."
        return f"On the {receptacle}, you see {seen}."

    def _look(self) -> str:
        if self._place is None:
            return "You are in the middle of a room. Looking quickly around you, you see nothing."
        return f"You are facing the {self._place}. Next to it, you see nothing."

    def _inventory(self) -> str:
        return f"You are carrying: a {self._held}." if self._held else "You are not carrying anything."

    def _go(self, receptacle: str) -> str:
        self._place = receptacle
        arrival = f"{self._say('You arrive at')} {receptacle}."
        return arrival if self._rules.is_terse else f"{arrival} {self._contents(receptacle)}"

    def _open_door(self, receptacle: str) -> str:
        self._open.add(receptacle)
        return f"{self._say('You open')} the {receptacle}. {self._examine(receptacle)}"

    def _close(self, receptacle: str) -> str:
        self._open.discard(receptacle)
        return f"{self._say('You close')} the {receptacle}."

    def _take(self, object_: str, receptacle: str) -> str:
        self._inside[receptacle].remove(object_)
        self._held = object_
        return f"{self._say('You pick up')} the {object_} from the {receptacle}."

    def _move(self, object_: str, receptacle: str) -> str:
        self._held = None
        self._inside[receptacle] = sorted([*self._inside[receptacle], object_], key=listing_order)
        if self._rules.closes_itself:
            self._open.discard(receptacle)
        return f"{self._say('You move')} the {object_} to the {receptacle}."

    def _treat(self, verb: str, object_: str, tool: str) -> str:
        if verb != "clean":
            self._marks[object_] -= {"hot", "cool"}
        self._marks[object_].add(_MARK[verb])
        return f"You {verb} the {object_} using the {tool}."

    def _slice(self, object_: str, knife: str) -> str:
        self._marks[object_].add("sliced")
        return f"You sliced the {object_} with the {knife}."

    def _use(self, lamp: str) -> str:
        self._lit.add(lamp)
        return f"You turn on the {lamp}."

    def _say(self, words: str) -> str:
        return PARAPHRASES[words] if self._rules.is_paraphrased else words

    def _describe(self, object_: str) -> str:
        self._looked_at.add(object_)
        marks = self._marks[object_]
        words = [mark for mark in ("hot", "cool", "clean") if mark in marks]
        if marks == {"cool"}:
            words = ["cold"]
        state = " ".join([" and ".join(words), *(["sliced"] if "sliced" in marks else [])]).strip()
        return f"This is a {state} {object_}." if state else f"There's nothing special about {object_}."


def _listed(names: Iterable[str]) -> str:
    items = [f"a {name}" for name in names]
    if len(items) < 2:
        return items[0] if items else "nothing"
    return f"{', '.join(items[:-1])}, and {items[-1]}"
