"""The caches that make TextWorld's planning games fast, all in one place; texts and verdicts stay the same.

TextWorld translates a problem four times per game, parses the grammar for each game and every template at each use,
and derives the text of every legal command at every step. Here a game is translated once, the grammar is parsed once
for all games that differ in the task sentence only, and a command's text is derived once per game.
"""

from __future__ import annotations

import contextlib
import functools
import json
import re
import zlib
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import fast_downward
from fast_downward.translate.pddl import conditions
from textworld.envs.pddl.logic import Atom
from textworld.envs.pddl.logic import _parse_and_convert as parse_logic
from textworld.envs.pddl.textgen import ProductionRule
from textworld.generator.game import EntityInfo
from textworld.logic import Placeholder, Proposition, State, Type, TypeHierarchy, Variable

from envs.alfworld.engine import shown_names
from envs.alfworld.text import Grammar, Scope, parse_template
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
class Game:
    """All that a game's start is made of, translated; shared by every episode of the game in this process."""

    sas: bytes
    """Compressed planning task for Fast Downward."""
    facts: tuple[Proposition, ...]
    """What is true at the start."""
    types: TypeHierarchy
    object_types: Mapping[str, str]
    parameters: Mapping[str, tuple[Placeholder, ...]]
    """Action name -> its placeholders."""
    changing: frozenset[str]
    """Predicates that some action changes."""
    entities: Mapping[str, EntityInfo]
    actions: Mapping[str, Any]
    grammar: Grammar
    commands: dict[int, Operator] = field(default_factory=dict)
    """Operator id -> what it is called; filled as operators become applicable."""


@dataclass(frozen=True, slots=True)
class Operator:
    """One grounded action."""

    id: int
    name: str
    """Action and arguments, blank-separated."""
    num_effects: int
    command: str | None
    """Its text, or None if that text depends on what changes."""


class Facts(State):
    """What is true now; TextWorld's queries without its planning state."""

    def __init__(self, types: TypeHierarchy, facts: tuple[Proposition, ...]):
        self._facts = defaultdict(set)
        self._vars_by_name = {}
        self._vars_by_type = defaultdict(set)
        self._var_counts = Counter()
        self._logic = SimpleNamespace(types=types)
        self.add_facts(facts)


class FastEngine:
    """A Fast Downward library of its own, and the game it plays."""

    def __init__(self) -> None:
        self._lib = fast_downward.load_lib()

    def load(self, game: Mapping[str, Any]) -> Scene:
        """Start a game, given the content of its file."""
        self._game = translate(game["pddl_domain"], game["pddl_problem"], game["grammar"])
        self._facts = Facts(self._game.types, self._game.facts)
        self._lib.load_sas(zlib.decompress(self._game.sas))
        return self._scene(self._game.grammar.derive("#intro#", self._scope({})))

    def step(self, command: str) -> Scene:
        """Apply a command."""
        operator = self._legal.get(command.strip())
        if operator is None:
            return self._scene(NOTHING_HAPPENS)
        effects = (Atom * operator.num_effects)()
        self._lib.apply_operator(operator.id, effects)
        for effect in effects:
            fact = effect.get_fact(self._game.object_types)
            self._facts.remove_fact(fact.negate())
            self._facts.add_fact(fact)
        template = self._game.actions[operator.name.split()[0]].feedback_rule
        return self._scene(self._game.grammar.derive(template, self._scope(self._mapping(operator.name))))

    def _scene(self, text: str) -> Scene:
        self._legal = {}
        for operator in self._applicable():
            command = operator.command or self._command(operator.name)
            self._legal.setdefault(command, operator)
        return Scene(text, tuple(sorted(self._legal)), bool(self._lib.check_goal()))

    def _applicable(self) -> list[Operator]:
        """Operators that can be applied now; of several with one name the first."""
        found = (fast_downward.Operator * self._lib.get_applicable_operators_count())()
        self._lib.get_applicable_operators(found)
        known = self._game.commands
        operators = {}
        for operator in found:
            if operator.id not in known:
                known[operator.id] = self._named(operator)
            operators.setdefault(known[operator.id].name, known[operator.id])
        return list(operators.values())

    def _named(self, operator: Any) -> Operator:
        name = operator.name
        template = self._game.actions[name.split()[0]].template
        is_fixed = self._game.changing.isdisjoint(_PREDICATE.findall(template))
        return Operator(operator.id, name, operator.nb_effect_atoms, self._command(name) if is_fixed else None)

    def _command(self, name: str) -> str:
        template = self._game.actions[name.split()[0]].template
        return self._game.grammar.derive(template, self._scope(self._mapping(name)))

    def _mapping(self, name: str) -> dict[Placeholder, Variable]:
        action, *arguments = name.split()
        pairs = zip(self._game.parameters[action], arguments, strict=False)
        return {placeholder: Variable(argument, placeholder.type) for placeholder, argument in pairs}

    def _scope(self, mapping: dict[Placeholder, Variable]) -> Scope:
        return Scope(self._facts, self._game.entities, mapping)


@functools.lru_cache(maxsize=NUM_GAMES_KEPT)
def translate(domain: str, problem: str, grammar: str) -> Game:
    """The game of three texts, as Fast Downward and the grammar need it."""
    logic, task_rule = parse_grammar(grammar)
    task, sas = fast_downward.pddl2sas(domain, problem)
    object_types = {thing.name: thing.type_name for thing in task.objects}
    facts = tuple(filter(None, (_fact(item, object_types) for item in task.init)))
    return Game(
        sas=zlib.compress(sas.encode()),
        facts=facts,
        types=_types(task.types),
        object_types=object_types,
        parameters={
            action.name: tuple(Placeholder(p.name.strip("?"), p.type_name) for p in action.parameters)
            for action in task.actions
        },
        changing=frozenset(effect.literal.predicate for action in task.actions for effect in action.effects),
        entities=_entities(facts),
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
    actions, rules = parse_logic(grammar, rule_name="pddlStart")
    return Logic(actions, rules._rules)


def _fact(item: Any, object_types: Mapping[str, str]) -> Proposition | None:
    """A starting fact; costs and equalities are no facts."""
    if not isinstance(item, conditions.Atom) or item.predicate == "=":
        return None
    return Proposition(item.predicate, [Variable(name, object_types[name]) for name in item.args])


def _types(declared: Any) -> TypeHierarchy:
    types = TypeHierarchy()
    for type_ in declared:
        with contextlib.suppress(ValueError):  # the root type is there already
            types.add(Type(type_.name, type_.supertype_names))
    return types


def _entities(facts: tuple[Proposition, ...]) -> dict[str, EntityInfo]:
    """Identifier -> entity with its shown name, for everything a fact mentions."""
    entities = {v.name: EntityInfo(v.name, v.type) for fact in facts for v in fact.arguments}
    for id_, name in shown_names(entities).items():
        entities[id_].name, entities[id_].definite, entities[id_].indefinite = name, "the", "a"
    return entities
