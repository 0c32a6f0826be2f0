"""What is true in a game now, and which things fit a query such as `openable(r:receptacle) & opened(r:receptacle)`.

Answers and their order are those of TextWorld's own state; its objects compare in Python, these are strings.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from textworld.logic import Rule

Arguments = tuple[str, ...]
Binding = Mapping[str, str]
"""Placeholder's name -> identifier of the thing it stands for."""


class Condition(NamedTuple):
    """One predicate of a query."""

    predicate: str
    placeholders: tuple[tuple[str, str], ...]
    """`(name, type)` of each argument."""


@functools.cache
def parse_query(text: str) -> tuple[Condition, ...]:
    """The conditions of a conjunctive query."""
    conditions = Rule.parse_conjunctive_query(text).preconditions
    return tuple(Condition(c.name, tuple((p.name, p.type) for p in c.parameters)) for c in conditions)


class Facts:
    """The facts that hold, by predicate.

    Example:
        >>> facts = Facts({"opened": {("fridge_1",)}}, {"fridge_1": frozenset({"receptacle", "object"})})
        >>> list(facts.matches("opened(r:receptacle)", {}))
        [{'r': 'fridge_1'}]
    """

    def __init__(self, start: Mapping[str, set[Arguments]], types: Mapping[str, frozenset[str]]):
        self._holding = {predicate: set(arguments) for predicate, arguments in start.items()}
        self._types = types
        self._sorted: dict[str, list[Arguments]] = {}

    def apply(self, atom: str) -> None:
        """Make an effect true, as Fast Downward writes it: `Atom opened(x)` or `NegatedAtom opened(x)`.

        A fact that was made false is also kept as `not_opened(x)`, which a query can ask for.
        """
        kind, _, rest = atom.partition(" ")
        predicate, _, inside = rest.rstrip(")").partition("(")
        arguments = tuple(inside.split(", ")) if inside else ()
        true, false = (f"not_{predicate}", predicate) if kind == "NegatedAtom" else (predicate, f"not_{predicate}")
        self._holding.setdefault(false, set()).discard(arguments)
        self._holding.setdefault(true, set()).add(arguments)
        self._sorted.pop(true, None)
        self._sorted.pop(false, None)

    def matches(self, query: str, bound: Binding) -> Iterator[dict[str, str]]:
        """Every extension of `bound` under which the query holds; new placeholders stand for things not bound yet."""
        return self._extend(parse_query(query), dict(bound))

    def _extend(self, conditions: tuple[Condition, ...], bound: dict[str, str]) -> Iterator[dict[str, str]]:
        if not conditions:
            yield bound
            return
        predicate, placeholders = conditions[0]
        for arguments in self._listed(predicate):
            extended = self._bind(placeholders, arguments, bound)
            if extended is not None:
                yield from self._extend(conditions[1:], extended)

    def _bind(
        self, placeholders: tuple[tuple[str, str], ...], arguments: Arguments, bound: dict[str, str]
    ) -> dict[str, str] | None:
        extended = bound
        for (name, type_), argument in zip(placeholders, arguments, strict=True):
            known = extended.get(name)
            if known == argument:
                continue
            if known is not None or type_ not in self._types[argument] or argument in extended.values():
                return None
            extended = {**extended, name: argument}
        return extended

    def _listed(self, predicate: str) -> list[Arguments]:
        if predicate not in self._sorted:
            self._sorted[predicate] = sorted(self._holding.get(predicate, ()))
        return self._sorted[predicate]
