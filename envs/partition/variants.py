"""Environment-level arms: every client keeps the tasks of `uniform` and lives in one of n frozen worlds.

A client's world is `RandomState(seed + client_id).randint(n)` among the first n of an ordered pool; it never
changes between rounds. What a world means is its environment's business: `Variant.params` says it in full.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from numpy.random import RandomState

from envs.base import Shard, Task, Variant
from envs.partition.checks import check_count
from envs.partition.registry import Partition
from envs.partition.uniform import uniform

ALL_FIELDS = ["name", "Title", "description", "features", "BulletPoints"]
"""Product fields that a search index may be made of; those that a product lacks add nothing to its document, and a
document without words falls back to the product's name."""
_BM25: Mapping[str, Any] = {"fields": ALL_FIELDS, "k1": 1.2, "b": 0.75}
LOOKALIKE_SEED = 99999
"""Draws the option values of cloned products."""

FIELD_SUBSETS = [
    ALL_FIELDS,
    ["name", "Title"],
    ["description"],
    ["BulletPoints"],
    ["features"],
    ["name", "Title", "BulletPoints"],
    ["description", "features"],
    ["description", "features", "BulletPoints"],
]
REWEIGHTS = [(1.2, 0.75), (1.2, 0.0), (0.3, 0.75), (5.0, 0.75), (0.1, 0.75), (1.2, 1.0), (2.0, 0.5), (0.3, 0.0)]
"""BM25's (k1, b)."""
LOOKALIKES = ["v_price", "v_color", "v_size", "v_price_color"]
"""What a clone of a product changes."""
RANKINGS: list[dict[str, Any]] = [
    {"kind": "default"},
    {"kind": "shuffle", "top": 50},
    {"kind": "invert"},
    {"kind": "partial", "share": 0.5},
]
OBSERVATIONS = ["default", "v_terse_goto", "v_blind_intro", "v_paraphrase"]
DYNAMICS = ["default", "v_examine_gate", "v_autoclose", "v_both"]
GOALS = ["default", "v_examined", "v_closed", "v_both"]


def assigned(client_id: int, num_variants: int, seed: int) -> int:
    """Which of `num_variants` worlds a client lives in.

    Example:
        >>> [assigned(client, 4, 42) for client in range(4)]
        [2, 0, 0, 3]
    """
    return int(RandomState(seed + client_id).randint(num_variants))


def _no_more(_client_id: int, _seed: int) -> dict[str, Any]:
    return {}


def _arm(
    name: str,
    pool: Sequence[Mapping[str, Any]],
    doc: str,
    *,
    default: int = 4,
    own: Callable[[int, int], dict[str, Any]] = _no_more,
) -> Partition:
    """The strategy that gives each client one world of `pool`; `own` adds what differs from client to client."""

    def arm(
        tasks: Sequence[Task], client_id: int, num_clients: int, *, seed: int, tasks_per_client: int, variant_n: int = 0
    ) -> Shard:
        mine = uniform(tasks, client_id, num_clients, seed=seed, tasks_per_client=tasks_per_client)
        num_variants = default if variant_n == 0 and type(variant_n) is int else variant_n
        check_count("variant_n", num_variants, 2, len(pool), f"or 0, which means {default}")
        index = assigned(client_id, num_variants, seed)
        return Shard(client_id, mine.task_ids, Variant(name, {"index": index, **pool[index], **own(client_id, seed)}))

    arm.__name__ = arm.__qualname__ = name
    arm.__doc__ = f"{doc}\n\n    `variant_n` worlds are in use; 0 means {default}."
    return arm


def _kinds(names: Sequence[str], **common: Any) -> list[dict[str, Any]]:
    return [{"kind": name, **common} for name in names]


bm25_field_subset = _arm(
    "bm25_field_subset",
    [{**_BM25, "fields": fields} for fields in FIELD_SUBSETS],
    "Give each client a search engine that indexes other product fields.",
)
bm25_reweight = _arm(
    "bm25_reweight",
    [{**_BM25, "k1": k1, "b": b} for k1, b in REWEIGHTS],
    "Give each client a search engine that ranks with other BM25 parameters.",
)
lookalike = _arm(
    "lookalike",
    _kinds(LOOKALIKES, clone_seed=LOOKALIKE_SEED, **_BM25),
    "Put clones of products, wrong in price or option, into each client's shop.",
    default=2,
)
rank_wrapper = _arm(
    "rank_wrapper",
    [{**ranking, **_BM25} for ranking in RANKINGS],
    "Reorder each client's search results.",
    own=lambda client_id, seed: {"rank_seed": seed + client_id},
)
obs_variant = _arm("obs_variant", _kinds(OBSERVATIONS), "Word each client's observations differently.")
dyn_variant = _arm("dyn_variant", _kinds(DYNAMICS), "Change what each client's actions require or cause.")
goal_variant = _arm("goal_variant", _kinds(GOALS), "Change what each client's games count as won.")
