"""How different the clients of a realised partition are, on three axes: category mix, shard size, difficulty.

Axis suffixes: `C` clients, `K` categories, `N` tasks of the pool.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

from envs.base import Shard, Task

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True, slots=True)
class Heterogeneity:
    """One number per axis, 0 when all clients are alike.

    Example:
        >>> halves = [Shard(0, ("a",)), Shard(1, ("b",))]
        >>> tasks = [Task("a", "train", {"category": "x"}), Task("b", "train", {"category": "y"})]
        >>> measure(tasks, halves, None)
        Heterogeneity(preference=0.5, coverage=0.0, hardness=None)
    """

    preference: float
    """Mean squared distance of a client's category mix from the mean mix; below 1."""
    coverage: float
    """Squared coefficient of variation of the shard sizes."""
    hardness: float | None
    """Variance of the share of easy tasks, at most 1/4; None without success labels."""


def measure(tasks: Sequence[Task], shards: Sequence[Shard], easy: Mask | None) -> Heterogeneity:
    """The heterogeneity of `shards`; `easy` `[N]` says which tasks a reference policy solved."""
    held_CN = holdings(tasks, shards)
    mix_CK = category_mix(tasks, held_CN)
    sizes_C = held_CN.sum(axis=1)
    return Heterogeneity(
        preference=float(((mix_CK - mix_CK.mean(axis=0)) ** 2).sum(axis=1).mean()),
        coverage=float(sizes_C.var() / sizes_C.mean() ** 2),
        hardness=None if easy is None else float(easy_share(held_CN, easy).var()),
    )


def iid_floor(tasks: Sequence[Task], shards: Sequence[Shard], easy: Mask | None) -> Heterogeneity:
    """What `measure` is expected to give for shards of the same sizes drawn from the pool at random."""
    sizes_C = holdings(tasks, shards).sum(axis=1)
    everything = np.ones((1, len(tasks)), dtype=np.bool_)
    left_out_C = (len(tasks) - sizes_C) / max(1, len(tasks) - 1)
    noise = float((left_out_C / sizes_C).mean()) * (1 - 1 / len(shards))
    share = None if easy is None else float(easy.mean())
    return Heterogeneity(
        preference=noise * float(1 - (category_mix(tasks, everything) ** 2).sum()),
        coverage=0.0,
        hardness=None if share is None else noise * share * (1 - share),
    )


def leak(strategy: str, found: Heterogeneity, floor: Heterogeneity) -> dict[str, float]:
    """Axis -> heterogeneity above the i.i.d. floor, for the axes that `strategy` is not meant to move."""
    floors = asdict(floor)
    return {
        axis: value - floors[axis] for axis, value in asdict(found).items() if axis != strategy and value is not None
    }


def holdings(tasks: Sequence[Task], shards: Sequence[Shard]) -> Mask:
    """`[C, N]` whether a client holds a task."""
    position = {task.id: at for at, task in enumerate(tasks)}
    held_CN = np.zeros((len(shards), len(tasks)), dtype=np.bool_)
    for client, shard in enumerate(shards):
        held_CN[client, [position[task_id] for task_id in shard.task_ids]] = True
    return held_CN


def categories(tasks: Sequence[Task]) -> list[str]:
    """Category names in first-seen order."""
    return list(dict.fromkeys(task.meta["category"] for task in tasks))


def category_mix(tasks: Sequence[Task], held_CN: Mask) -> Floats:
    """`[C, K]` share of each category in each client's tasks; rows sum to 1."""
    column = {name: at for at, name in enumerate(categories(tasks))}
    member_NK = np.zeros((len(tasks), len(column)), dtype=np.float64)
    member_NK[np.arange(len(tasks)), [column[task.meta["category"]] for task in tasks]] = 1
    return held_CN @ member_NK / held_CN.sum(axis=1, keepdims=True)


def easy_share(held_CN: Mask, easy: Mask) -> Floats:
    """`[C]` share of easy tasks in each client's shard."""
    return held_CN[:, easy].sum(axis=1) / held_CN.sum(axis=1)


def overlap(held_CN: Mask) -> Floats:
    """`[C, C]` Jaccard index of every two clients' tasks."""
    held = held_CN.astype(np.float32)
    shared = (held @ held.T).astype(np.float64)
    sizes_C = shared.diagonal()
    return shared / (sizes_C[:, None] + sizes_C[None, :] - shared)
