"""Contiguous slices of the task list: the i.i.d. arm, and the task axis of every environment-level arm."""

from __future__ import annotations

from collections.abc import Sequence

from envs.base import Shard, Task
from envs.partition.checks import check_tasks_per_client


def uniform(tasks: Sequence[Task], client_id: int, num_clients: int, *, seed: int, tasks_per_client: int) -> Shard:  # noqa: ARG001
    """Give each client the same-sized slice of the canonical order; no randomness.

    `tasks_per_client` is a minimum: with enough tasks, slices are `len(tasks) // num_clients` long and disjoint;
    with too few they grow over their neighbours to exactly that minimum.

    Raises:
        ConfigError: if `tasks_per_client` exceeds the number of tasks.
    """
    check_tasks_per_client(tasks_per_client, tasks)
    part = slice_of(len(tasks), client_id, num_clients, tasks_per_client)
    return Shard(client_id, tuple(tasks[i].id for i in part))


def site(tasks: Sequence[Task], client_id: int, num_clients: int, *, seed: int) -> Shard:  # noqa: ARG001
    """Give a client all tasks of its own environment: every site has its own, and there is no pool to divide."""
    return Shard(client_id, tuple(task.id for task in tasks))


def slice_of(num_tasks: int, client_id: int, num_clients: int, at_least: int) -> range:
    """Positions of one client's slice, padded on both sides (then on the side with room) to `at_least`.

    Example:
        >>> slice_of(6410, 1, 100, 100)
        range(46, 146)
    """
    base = num_tasks // num_clients
    start = client_id * base
    need = max(0, min(at_least, num_tasks) - base)
    room_left, room_right = start, num_tasks - start - base
    left = min(need // 2, room_left)
    right = min(need - left, room_right)
    left += min(need - left - right, room_left - left)
    return range(start - left, start + base + right)
