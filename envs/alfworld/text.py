"""Derives texts from a game's grammar: TextWorld's parser and conditions, without re-parsing or copying anything.

TextWorld parses every template anew each time it is used, which is most of a step's time; here a template is parsed
once per process. Expressions in templates are interpreted, not evaluated as Python, because they come from data files.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from textworld.envs.pddl import textgen
from textworld.logic import Placeholder, Rule, State, Variable

from flwr_agent.errors import DataError

_READABLE = frozenset({"name", "id", "type", "definite", "indefinite"})
"""What a template may ask of an entity."""

parse_template = functools.cache(functools.partial(textgen._parse_and_convert, rule_name="symbols"))
parse_query = functools.cache(Rule.parse_conjunctive_query)


class Scope(NamedTuple):
    """The names a template can use."""

    state: State
    entities: Mapping[str, Any]
    """Identifier -> entity, as it is shown."""
    mapping: Mapping[Placeholder, Variable]

    def bound(self, mapping: Mapping[Placeholder, Variable]) -> Scope:
        """This scope with more placeholders bound."""
        return self._replace(mapping={**self.mapping, **mapping})

    def matches(self, query: str) -> Iterator[Mapping[Placeholder, Variable]]:
        """Every way to bind the placeholders of a query so that it holds now."""
        return self.state.all_assignments(parse_query(query), self.mapping)

    def value(self, name: str) -> Any:
        """The entity bound to a placeholder's name."""
        for placeholder, variable in self.mapping.items():
            if placeholder.name == name:
                return self.entities[variable.name]
        raise DataError("game", "grammar", f"a template uses {name!r}, which nothing binds")


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
            if not rule.condition or next(scope.matches(rule.condition), None) is not None:
                return rule
        raise DataError("game", "grammar", f"no rule of #{name}# applies")

    def _items(self, symbol: Any, scope: Scope) -> list[str]:
        if not symbol.given:
            return [self._expand(symbol.expression, scope)]
        return [self._expand(symbol.expression, scope.bound(match)) for match in scope.matches(symbol.given)]

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
        case ast.Attribute(value=ast.Name(id=name), attr=attribute) if attribute in _READABLE:
            return getattr(scope.value(name), attribute)
        case ast.Constant(value=str(text)):
            return text
        case ast.BoolOp(op=ast.Or(), values=options):
            return next(filter(None, (_value(option, scope) for option in options)), "")
        case ast.BinOp(op=ast.Add(), left=left, right=right):
            return _value(left, scope) + _value(right, scope)
    raise DataError("game", "grammar", f"cannot read the expression {ast.unparse(node)!r}")
