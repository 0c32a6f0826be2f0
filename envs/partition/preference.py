"""Shards of equal size and unequal category mix."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.random import RandomState
from numpy.typing import NDArray

from envs.base import Shard, Task
from envs.partition.checks import check_count, check_number, check_tasks_per_client

THINNED = {"fashion": 0.2}
"""Categories of which a client sees only a share, so that one of WebShop's does not drown the others."""
SMOOTHING = 0.01
"""Added to every category's prior before it is normalised."""

ByCategory = Mapping[str, NDArray[np.int64]]
"""Category -> positions of its tasks, in the order in which categories are first seen."""


def preference(
    tasks: Sequence[Task],
    client_id: int,
    num_clients: int,  # noqa: ARG001
    *,
    seed: int,
    tasks_per_client: int,
    omega: float,
) -> Shard:
    """Exactly `tasks_per_client` tasks, with a category mix drawn around the pool's.

    The mix is Dirichlet with mean the pool's mix for every `omega` and variance linear in it: the expected squared
    distance of a client's mix from the pool's is `omega (1 - |pool mix|^2)`; 0.01 is nearly i.i.d., 0.99 nearly one
    category per client.

    Raises:
        ConfigError: if `omega` is outside [0, 1], or more tasks are wanted than the strategy keeps.
    """
    check_number("omega", omega, 0, 1)
    check_tasks_per_client(tasks_per_client, tasks)
    pool = _thinned(by_category(tasks), seed + client_id)
    kept = sum(map(len, pool.values()))
    check_count("tasks_per_client", tasks_per_client, 1, kept, f"preference keeps {kept} tasks of this pool")
    chosen = _draw(pool, tasks_per_client, float(np.clip(omega, 1e-3, 1 - 1e-3)), RandomState(seed + client_id))
    return Shard(client_id, tuple(tasks[i].id for i in sorted(chosen)))


def by_category(tasks: Sequence[Task]) -> ByCategory:
    """Positions of the tasks of each category, categories in first-seen order."""
    groups: dict[str, list[int]] = {}
    for position, task in enumerate(tasks):
        groups.setdefault(task.meta["category"], []).append(position)
    return {category: np.array(positions) for category, positions in groups.items()}


def _thinned(groups: ByCategory, seed: int) -> ByCategory:
    def thin(category: str, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        if category not in THINNED:
            return positions
        keep = max(1, int(THINNED[category] * len(positions)))
        return RandomState(seed).choice(positions, keep, replace=False)

    return {category: thin(category, positions) for category, positions in groups.items()}


def _draw(pool: ByCategory, size: int, omega: float, state: RandomState) -> list[int]:
    room = np.array([len(positions) for positions in pool.values()])
    prior = (room / room.sum() + SMOOTHING) / (1 + SMOOTHING * len(room))
    counts = _within_room(_mix(prior, omega, state), size, room, state)
    chosen: list[int] = []
    for positions, count in zip(pool.values(), counts, strict=True):
        chosen += state.choice(positions, count, replace=False).tolist()
    if len(chosen) < size:
        unused = np.setdiff1d(np.concatenate(list(pool.values())), chosen)
        chosen += state.choice(unused, size - len(chosen), replace=False).tolist()
    return chosen


def _mix(prior: NDArray[np.float64], omega: float, state: RandomState) -> NDArray[np.float64]:
    drawn = state.dirichlet(prior * (1 - omega) / omega)
    if not np.isfinite(drawn).all():  # every gamma draw underflowed: the limit is one category, drawn from the prior
        drawn = np.eye(len(prior))[state.choice(len(prior), p=prior)]
    return drawn / drawn.sum()


def _within_room(mix: NDArray[np.float64], size: int, room: NDArray[np.int64], state: RandomState) -> NDArray[np.int64]:
    """Counts per category: multinomial, what exceeds a category's `room` drawn again over those that have some."""
    counts = state.multinomial(size, mix)
    overflow = int(np.maximum(counts - room, 0).sum())
    counts = np.minimum(counts, room)
    while overflow:
        open_mix = np.where(counts < room, mix, 0.0)
        if not open_mix.any():
            break
        added = np.minimum(state.multinomial(overflow, open_mix / open_mix.sum()), room - counts)
        counts += added
        overflow -= int(added.sum())
    return counts
