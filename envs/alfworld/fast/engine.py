"""The caches that make TextWorld's planning games fast, all in one place; texts and verdicts stay the same.

TextWorld translates a problem four times per game, parses the grammar for each game and every template at each use,
and derives the text of every legal command at every step. Here a game is translated once, the grammar is parsed once
for all games that differ in the task sentence only, and a command's text is derived once per game.
"""

from __future__ import annotations

import functools
import json
import re
import zlib
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import fast_downward
from fast_downward.translate.pddl import conditions
from textworld.envs.pddl.logic import _parse_and_convert as parse_logic
from textworld.envs.pddl.textgen import ProductionRule

from envs.alfworld.engine import shown_names
from envs.alfworld.fast.facts import Arguments, Binding, Facts
from envs.alfworld.fast.text import Grammar, Scope, Thing, parse_template
from envs.minihouse.episode import Scene

NUM_GAMES_KEPT = 256
"""Translated games a process keeps."""

NOTHING_HAPPENS = "Nothing happens."
_TASK_RULE = re.compile(r'"task"\s*:\s*\[\s*\{\s*"rhs"\s*:\s*(?P<sentence>"(?:[^"\\]|\\.)*")\s*\}\s*\]')
_PREDICATE = re.compile(r"(\w+)\(")


@dataclass(frozen=True, slots=True)
class Logic:
    """A parsed grammar."""

    actions: Mapping[str, Any]
    """Action name -> its templates."""
    rules: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Operator:
    """One grounded action."""

    id: int
    name: str
    """Action and arguments, blank-separated."""
    num_effects: int
    command: str | None
    """Its text, or None if that text depends on what changes."""


@dataclass(frozen=True, slots=True)
class Game:
    """All that a game's start is made of, translated; shared by every episode of the game in this process."""

    sas: bytes
    """Compressed planning task for Fast Downward."""
    facts: Mapping[str, set[Arguments]]
    """What is true at the start."""
    types: Mapping[str, frozenset[str]]
    """Identifier -> all types it is of."""
    placeholders: Mapping[str, tuple[str, ...]]
    """Action name -> names of its parameters."""
    changing: frozenset[str]
    """Predicates that some action changes."""
    things: Mapping[str, Thing]
    actions: Mapping[str, Any]
    """Action name -> its templates."""
    grammar: Grammar
    operators: dict[int, Operator] = field(default_factory=dict)
    """Filled as operators become applicable."""


class FastEngine:
    """A Fast Downward library of its own, and the game it plays."""

    def __init__(self) -> None:
        self._lib = fast_downward.load_lib()

    def load(self, game: Mapping[str, Any]) -> Scene:
        """Start a game, given the content of its file."""
        self._game = translate(game["pddl_domain"], game["pddl_problem"], game["grammar"])
        self._facts = Facts(self._game.facts, self._game.types)
        self._lib.load_sas(zlib.decompress(self._game.sas))
        return self._scene(self._game.grammar.derive("#intro#", self._scope({})))

    def step(self, command: str) -> Scene:
        """Apply a command."""
        operator = self._legal.get(command.strip())
        if operator is None:
            return self._scene(NOTHING_HAPPENS)
        effects = (fast_downward.Atom * operator.num_effects)()
        self._lib.apply_operator(operator.id, effects)
        for effect in effects:
            self._facts.apply(effect.name)
        template = self._game.actions[operator.name.split()[0]].feedback_rule
        return self._scene(self._game.grammar.derive(template, self._scope(self._binding(operator.name))))

    def _scene(self, text: str) -> Scene:
        self._legal: dict[str, Operator] = {}
        for operator in self._applicable():
            command = operator.command or self._command(operator.name)
            self._legal.setdefault(command, operator)
        return Scene(text, tuple(sorted(self._legal)), bool(self._lib.check_goal()))

    def _applicable(self) -> list[Operator]:
        """Operators that can be applied now; of several with one name the first."""
        found = (fast_downward.Operator * self._lib.get_applicable_operators_count())()
        self._lib.get_applicable_operators(found)
        known = self._game.operators
        operators: dict[str, Operator] = {}
        for raw in found:
            operator = known.get(raw.id)
            if operator is None:
                operator = known[raw.id] = self._named(raw)
            operators.setdefault(operator.name, operator)
        return list(operators.values())

    def _named(self, raw: Any) -> Operator:
        name = raw.name
        template = self._game.actions[name.split()[0]].template
        is_fixed = self._game.changing.isdisjoint(_PREDICATE.findall(template))
        return Operator(raw.id, name, raw.nb_effect_atoms, self._command(name) if is_fixed else None)

    def _command(self, name: str) -> str:
        template = self._game.actions[name.split()[0]].template
        return self._game.grammar.derive(template, self._scope(self._binding(name)))

    def _binding(self, name: str) -> dict[str, str]:
        action, *arguments = name.split()
        return dict(zip(self._game.placeholders[action], arguments, strict=False))

    def _scope(self, bound: Binding) -> Scope:
        return Scope(self._facts, self._game.things, bound)


@functools.lru_cache(maxsize=NUM_GAMES_KEPT)
def translate(domain: str, problem: str, grammar: str) -> Game:
    """The game of three texts, as Fast Downward and the grammar need it."""
    logic, task_rule = parse_grammar(grammar)
    translated: Any = fast_downward.pddl2sas(domain, problem)
    task, sas = translated
    ancestors = {type_.name: frozenset({type_.name, *type_.supertype_names}) for type_ in task.types}
    types = {thing.name: ancestors[thing.type_name] for thing in task.objects}
    facts: dict[str, set[Arguments]] = defaultdict(set)
    for item in task.init:
        if isinstance(item, conditions.Atom) and item.predicate != "=":
            facts[item.predicate].add(tuple(item.args))
    return Game(
        sas=zlib.compress(sas.encode()),
        facts=facts,
        types=types,
        placeholders={action.name: tuple(p.name.strip("?") for p in action.parameters) for action in task.actions},
        changing=frozenset(effect.literal.predicate for action in task.actions for effect in action.effects),
        things=_things(facts, {thing.name: thing.type_name for thing in task.objects}),
        actions=logic.actions,
        grammar=Grammar({**logic.rules, **task_rule}),
    )


def parse_grammar(grammar: str) -> tuple[Logic, dict[str, Any]]:
    """The parsed grammar, and its rule for the task sentence, which is all that differs from game to game."""
    found = _TASK_RULE.search(grammar)
    if found is None:
        return _parse_logic(grammar), {}
    start, end = found.span("sentence")
    sentence = parse_template(json.loads(found["sentence"]))
    return _parse_logic(f'{grammar[:start]}"none"{grammar[end:]}'), {"task": [ProductionRule("task", sentence)]}


@functools.lru_cache(maxsize=8)
def _parse_logic(grammar: str) -> Logic:
    parsed: Any = parse_logic(grammar, rule_name="pddlStart")
    actions, rules = parsed
    return Logic(actions, rules._rules)


def _things(facts: Mapping[str, set[Arguments]], types: Mapping[str, str]) -> dict[str, Thing]:
    """Identifier -> thing with its shown name, for everything a fact mentions."""
    mentioned = {id_ for arguments in facts.values() for ids in arguments for id_ in ids}
    return {id_: Thing(id_, types[id_], name) for id_, name in shown_names(mentioned).items()}
