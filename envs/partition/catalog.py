"""Clients that shop for the same kind of goals in different catalogues."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.random import RandomState

from envs.base import Shard, Task, Variant
from envs.partition.checks import check_number
from envs.partition.uniform import uniform
from flwr_agent.errors import ConfigError

CLIENT_STRIDE = 1000
"""Distance between the seeds of two clients' own draws."""


def blended_scores(num_items: int, client_id: int, env_div: float, seed: int) -> np.ndarray:
    """`[n]` scores in [0, 1): shared by all clients at `env_div` 0, independent between them at 1."""
    shared = RandomState(seed).random_sample(num_items)
    own = RandomState(seed + CLIENT_STRIDE * client_id).random_sample(num_items)
    return (1 - env_div) * shared + env_div * own


def catalog_split(  # noqa: PLR0913 (the form of a partition, and its knobs)
    tasks: Sequence[Task],
    client_id: int,
    num_clients: int,
    *,
    seed: int,
    tasks_per_client: int,
    env_div: float,
    keep_ratio: float,
) -> Shard:
    """The tasks of `uniform`, in a shop that lacks a part of the products nobody in the shard asks for.

    The environment calls `catalog` with its own products and the variant's parameters.

    Raises:
        ConfigError: if a knob is out of range or tasks name no product (`meta["asin"]`).
    """
    check_number("env_div", env_div, 0, 1)
    check_number("keep_ratio", keep_ratio, 0, 1)
    mine = uniform(tasks, client_id, num_clients, seed=seed, tasks_per_client=tasks_per_client)
    held = set(mine.task_ids)
    targets = sorted({_asin(task) for task in tasks if task.id in held})
    params = {"client_id": client_id, "seed": seed, "env_div": env_div, "keep_ratio": keep_ratio, "targets": targets}
    return Shard(client_id, mine.task_ids, Variant("catalog_split", params))


def _asin(task: Task) -> str:
    if "asin" not in task.meta:
        raise ConfigError(
            "partition.strategy", "catalog_split", "the environment's tasks name no product (asin); use webshop"
        )
    return task.meta["asin"]


def catalog(asins: Iterable[str], params: Mapping[str, Any]) -> frozenset[str]:
    """The products of one client's shop: every target of its shard, and `keep_ratio` of all others.

    `params` are those of `catalog_split`'s variant. Products are kept by score, so that two clients' shops overlap
    most at `env_div` 0; the score of a product depends on its rank among all asins, never on the shard.

    Raises:
        ConfigError: if the shop lacks a target, which would make a goal unreachable.
    """
    universe = sorted(set(asins))
    targets: frozenset[str] = frozenset(params["targets"])
    if missing := targets.difference(universe):
        raise ConfigError(
            "partition.strategy",
            "catalog_split",
            f"the shop lacks {len(missing)} products that goals ask for ({min(missing)}, …); use the goals' own catalogue",
        )
    scores = blended_scores(len(universe), params["client_id"], params["env_div"], params["seed"])
    others = [position for position, asin in enumerate(universe) if asin not in targets]
    by_score = np.argsort(scores[others], kind="stable")[: round(params["keep_ratio"] * len(others))]
    return targets | {universe[others[i]] for i in by_score}
