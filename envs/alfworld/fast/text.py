"""Derives texts from a game's grammar: TextWorld's parser and rules, without parsing or copying anything twice.

TextWorld parses every template anew each time it is used, which is most of a step's time; here a template is parsed
once per process. Expressions in templates are interpreted, not evaluated as Python, because they come from data files.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

from textworld.envs.pddl import textgen

from envs.alfworld.fast.facts import Binding, Facts
from flwr_agent.errors import DataError


@functools.cache
def parse_template(template: str) -> list[Any]:
    """The symbols of a template."""
    parsed: Any = textgen._parse_and_convert(template, rule_name="symbols")
    return parsed


class Thing(NamedTuple):
    """An object, a receptacle or a place, as templates see it."""

    id: str
    type: str
    name: str
    definite: str = "the"
    indefinite: str = "a"

    def __str__(self) -> str:
        return self.name


class Scope(NamedTuple):
    """What a template can refer to."""

    facts: Facts
    things: Mapping[str, Thing]
    """Identifier -> thing, as it is shown."""
    bound: Binding

    def value(self, name: str) -> Thing:
        """The thing a placeholder stands for."""
        if name not in self.bound:
            raise DataError("game", "grammar", f"a template uses {name!r}, which nothing binds")
        return self.things[self.bound[name]]


class Grammar:
    """The production rules of a game."""

    def __init__(self, rules: Mapping[str, Any]):
        self._rules = rules

    def derive(self, template: str, scope: Scope) -> str:
        """The text of a template such as `You open the {r.name}. #examineReceptacle.feedback#`."""
        return "".join(self._expand(symbol, scope) for symbol in parse_template(template))

    def _expand(self, symbol: Any, scope: Scope) -> str:
        if isinstance(symbol, textgen.TerminalSymbol):
            return str(symbol)
        if isinstance(symbol, textgen.NonterminalSymbol):
            return "".join(self._expand(part, scope) for part in self._rule(str(symbol), scope).rhs)
        if isinstance(symbol, textgen.EvalSymbol):
            return str(_value(_expression(symbol.expression), scope))
        if isinstance(symbol, textgen.ConditionalSymbol):
            return "".join(self._items(symbol, scope))
        return self._listed(self._items(symbol.symbol, scope), scope)

    def _rule(self, name: str, scope: Scope) -> Any:
        for rule in self._rules.get(name, ()):
            if not rule.condition or next(scope.facts.matches(rule.condition, scope.bound), None) is not None:
                return rule
        raise DataError("game", "grammar", f"no rule of #{name}# applies")

    def _items(self, symbol: Any, scope: Scope) -> list[str]:
        if not symbol.given:
            return [self._expand(symbol.expression, scope)]
        matches = scope.facts.matches(symbol.given, scope.bound)
        return [self._expand(symbol.expression, scope._replace(bound=match)) for match in matches]

    def _listed(self, items: list[str], scope: Scope) -> str:
        if not items:
            return self.derive("#list_empty#", scope)
        if len(items) == 1:
            return items[0]
        comma, last = (self.derive(f"#{name}#", scope) for name in ("list_separator", "list_last_separator"))
        return comma.join(items[:-1]) + last + items[-1]


@functools.cache
def _expression(text: str) -> ast.expr:
    return ast.parse(text.strip(), mode="eval").body


def _value(node: ast.expr, scope: Scope) -> Any:
    """The value of `o.name`, `r.name or r.id`, `o.indefinite + ' ' + o.name` and the like."""
    match node:
        case ast.Name(id=name):
            return scope.value(name)
        case ast.Attribute(value=ast.Name(id=name), attr=attribute) if attribute in Thing._fields:
            return getattr(scope.value(name), attribute)
        case ast.Constant(value=str(text)):
            return text
        case ast.BoolOp(op=ast.Or(), values=options):
            return next(filter(None, (_value(option, scope) for option in options)), "")
        case ast.BinOp(op=ast.Add(), left=left, right=right):
            return _value(left, scope) + _value(right, scope)
    raise DataError("game", "grammar", f"cannot read the expression {ast.unparse(node)!r}")
