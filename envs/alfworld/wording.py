"""ALFWorld words every type of task in one of two ways; this gives both the first."""

from __future__ import annotations

import re

from flwr_agent.errors import DataError

_WAYS = (
    (r"put (?:a|some) (\S+) (?:in|on) (\S+)", r"put a \1 in \2"),
    (r"(?:put a clean (\S+) in|clean some (\S+) and put it in) (\S+)", r"put a clean \1\2 in \3"),
    (r"(?:put a hot (\S+) in|heat some (\S+) and put it in) (\S+)", r"put a hot \1\2 in \3"),
    (r"(?:put a cool (\S+) in|cool some (\S+) and put it in) (\S+)", r"put a cool \1\2 in \3"),
    (r"(?:put two (\S+) in|find two (\S+) and put them in) (\S+)", r"put two \1\2 in \3"),
    (r"(?:look at (\S+) under the|examine the (\S+) with the) (\S+)", r"look at \1\2 under the \3"),
)
_SENTENCE = re.compile(r'("task":\s*\[\s*\{\s*"rhs":\s*"Your task is to: )([^"]*?)(\.?")')


def first_way(sentence: str) -> str | None:
    """The sentence in the first wording of its type; None if it is in neither.

    Example:
        >>> first_way("heat some egg and put it in countertop")
        'put a hot egg in countertop'
    """
    for either, first in _WAYS:
        if match := re.fullmatch(either, sentence):
            return match.expand(first)
    return None


def worded_alike(grammar: str, path: str) -> str:
    """A game's grammar whose task sentence is in the first wording.

    Raises:
        DataError: the grammar has not exactly one task sentence, or one that is in neither wording.
    """
    sentences = [match[2] for match in _SENTENCE.finditer(grammar)]
    if len(sentences) != 1:
        raise DataError(path, "grammar", f"has {len(sentences)} task sentences, not 1; this game cannot be reworded")
    words = first_way(sentences[0])
    if words is None:
        raise DataError(path, "grammar", f"the task {sentences[0]!r} is worded in none of ALFWorld's ways")
    return _SENTENCE.sub(lambda match: f"{match[1]}{words}{match[3]}", grammar)
