"""How a client's household may differ: other wording, other requirements, another idea of a finished task."""

from __future__ import annotations

from dataclasses import dataclass

from envs.base import Variant
from flwr_agent.errors import ConfigError


@dataclass(frozen=True, kw_only=True, slots=True)
class Rules:
    """The rules of one household; the defaults are ALFWorld's.

    Example:
        >>> rules_of(Variant("dyn_variant", {"kind": "v_autoclose"})).closes_itself
        True
    """

    is_terse: bool = False
    """Arriving somewhere does not tell what is there."""
    is_blind: bool = False
    """The first text does not list the room."""
    is_paraphrased: bool = False
    """Five answers have other words."""
    needs_look: bool = False
    """Nothing can be taken from a receptacle that was neither examined nor opened."""
    closes_itself: bool = False
    """Putting something into a receptacle shuts it."""
    goal_needs_look: bool = False
    """The target receptacle must have been examined or opened; under a lamp, the held object must have been examined."""
    goal_needs_shut: bool = False
    """The target receptacle must be shut, if it can be."""
    is_worded_alike: bool = False
    """Tasks of one type are worded alike, where a game file has one of two ways; generated households always are."""


KINDS: dict[tuple[str, str], Rules] = {
    ("obs_variant", "default"): Rules(),
    ("obs_variant", "v_terse_goto"): Rules(is_terse=True),
    ("obs_variant", "v_blind_intro"): Rules(is_blind=True),
    ("obs_variant", "v_paraphrase"): Rules(is_paraphrased=True),
    ("dyn_variant", "default"): Rules(),
    ("dyn_variant", "v_examine_gate"): Rules(needs_look=True),
    ("dyn_variant", "v_autoclose"): Rules(closes_itself=True),
    ("dyn_variant", "v_both"): Rules(needs_look=True, closes_itself=True),
    ("goal_variant", "default"): Rules(),
    ("goal_variant", "v_examined"): Rules(goal_needs_look=True),
    ("goal_variant", "v_closed"): Rules(goal_needs_shut=True),
    ("goal_variant", "v_both"): Rules(goal_needs_look=True, goal_needs_shut=True),
}
"""`(variant, kind)` -> its rules."""


def rules_of(variant: Variant | None) -> Rules:
    """The rules a variant stands for; `scene_disjoint` restricts the tasks, and no wording may tell the scenes apart.

    Raises:
        ConfigError: if households have no such variant.
    """
    if variant is None:
        return Rules()
    if variant.name == "scene_disjoint":
        return Rules(is_worded_alike=True)
    kinds = {kind: rules for (name, kind), rules in KINDS.items() if name == variant.name}
    if not kinds:
        allowed = {"scene_disjoint", *(name for name, _ in KINDS)}
        raise ConfigError("partition.strategy", variant.name, "a household has no such variant", allowed=allowed)
    kind = variant.params.get("kind")
    if kind not in kinds:
        raise ConfigError(f"{variant.name}.kind", kind, "no such kind", allowed=kinds)
    return kinds[kind]
