"""Shards of unequal size that together cover the pool."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from envs.base import Shard, Task
from envs.partition.checks import check_count, check_number, check_tasks_per_client
from envs.partition.sizing import Holdings, assign_with_overlap, beta_sizes


def coverage(  # noqa: PLR0913 (the form of a partition, and its knobs)
    tasks: Sequence[Task],
    client_id: int,
    num_clients: int,
    *,
    seed: int,
    tasks_per_client: int,
    size_std: float,
    size_mean: int = 500,
    size_max: int = 1000,
) -> Shard:
    """Beta-distributed shard sizes from `tasks_per_client` to `size_max`, `size_mean` on average.

    `size_std` is a concentration: 256 gives nearly equal sizes, 1 extreme ones. The squared coefficient of variation
    of the sizes is `(max - min)^2 m (1 - m) / mean^2 / (size_std + 1)` in expectation, `m` the relative mean. Every
    task is held by `floor` or `ceil` of (sum of sizes / number of tasks) clients.

    Raises:
        ConfigError: if the three sizes are not in order or exceed the pool, or `size_std` is not positive.
    """
    check_tasks_per_client(tasks_per_client, tasks)
    check_count(
        "size_max",
        size_max,
        tasks_per_client + 1,
        len(tasks),
        f"above partition.tasks_per_client; the environment has {len(tasks)} training tasks",
    )
    check_count("size_mean", size_mean, tasks_per_client, size_max, "tasks_per_client to size_max")
    check_number("size_std", size_std, 1e-3, 1e6)
    held = holdings(len(tasks), num_clients, (tasks_per_client, size_mean, size_max), size_std, seed)
    return Shard(client_id, tuple(tasks[i].id for i in np.flatnonzero(held[client_id]).tolist()))


@lru_cache(maxsize=4)
def holdings(num_tasks: int, num_clients: int, bounds: tuple[int, int, int], size_std: float, seed: int) -> Holdings:
    """The whole federation's assignment `[C, n]`, with `bounds` = (smallest, mean, largest) size."""
    rng = np.random.default_rng(seed)
    sizes = beta_sizes(num_clients, *bounds, size_std, rng)
    return assign_with_overlap(num_tasks, sizes, rng)
