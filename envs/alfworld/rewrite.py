"""Gives a game file the rules of a client's household: rewrites grammar, domain or problem before the game is loaded.

Every rewrite knows how often its pattern must occur; a file where it does not is refused, so that no client plays
under other rules than it is said to.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from envs.alfworld.wording import worded_alike
from envs.minihouse.engine import PARAPHRASES
from envs.minihouse.rules import Rules
from flwr_agent.errors import DataError


class Edit(NamedTuple):
    """One replacement."""

    field: str
    pattern: str
    text: str
    most: int = 1
    """Most occurrences that are right; the fewest is one."""


_AND_CHECKED, _AND_SHUT = r"\g<0> (checked \g<1>)", r"\g<0> (not (opened \g<1>))"
_TARGET = r"\(receptacleType\s+(\?\w+)\s+\w+\)"
_HELD = r"\(holds\s+\?\w+\s+(\?\w+)\)"


def rewrite(game: Mapping[str, Any], rules: Rules, path: str) -> dict[str, Any]:
    """The content of a game file under `rules`.

    Raises:
        DataError: if the file has not the form a rewrite needs.
    """
    changed = dict(game)
    goal = changed["pddl_problem"].index("(:goal")
    changed["goal"], changed["pddl_problem"] = changed["pddl_problem"][goal:], changed["pddl_problem"][:goal]
    for edit in _edits(rules, is_light="(holds" in changed["goal"]):
        changed[edit.field], count = re.subn(edit.pattern, edit.text, changed[edit.field], flags=re.DOTALL)
        if not 1 <= count <= edit.most:
            fix = f"{edit.pattern!r} occurs {count} times, not 1 to {edit.most}; this game cannot have the variant"
            raise DataError(path, edit.field, fix)
    changed["pddl_problem"] += changed.pop("goal")
    if rules.is_worded_alike:
        changed["grammar"] = worded_alike(changed["grammar"], path)
    return changed


def _edits(rules: Rules, *, is_light: bool) -> Iterator[Edit]:
    if rules.is_terse:
        yield Edit("grammar", r'("GotoLocation\.feedback"[^\]]*?)\s*#examineReceptacle\.feedback#', r"\1")
    if rules.is_blind:
        yield Edit("grammar", r'("intro"[^\]]*?)#look\.feedback#\\n\\n', r"\1")
    if rules.is_paraphrased:
        yield from _paraphrases()
    if rules.needs_look:
        yield Edit("pddl_domain", r"\(:action PickupObject\s[^;]*?:precondition\s*\(and", r"\g<0> (checked ?r)")
    if rules.closes_itself:
        yield Edit("pddl_domain", r"\(:action PutObject\s.*?:effect\s*\(and", r"\g<0> (not (opened ?r))")
    if rules.goal_needs_look:
        yield Edit("goal", _HELD, _AND_CHECKED) if is_light else Edit("goal", _TARGET, _AND_CHECKED, 2)
    if rules.goal_needs_shut and not is_light:
        yield Edit("goal", _TARGET, _AND_SHUT, 2)


def _paraphrases() -> Iterator[Edit]:
    """The five answers; games of an older vocabulary say `You put the` where newer ones say `You move the`."""
    actions = ("GotoLocation", "OpenObject", "CloseObject", "PickupObject", "PutObject")
    for action, (words, other) in zip(actions, PARAPHRASES.items(), strict=True):
        said = "You (?:move|put)" if action == "PutObject" else words
        yield Edit("grammar", rf'("{action}\.feedback"[^\]]*?"rhs":\s*"){said}', rf"\g<1>{other}")
