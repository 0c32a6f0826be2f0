"""Shards of equal size and unequal difficulty."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np

from envs.base import Shard, Task
from envs.partition.checks import check_count, check_number
from envs.partition.labels import check_labels, easy_tasks, read_labels
from envs.partition.sizing import Holdings, Sizes, assign_with_overlap, beta_sizes
from flwr_agent.errors import ConfigError


def hardness(  # noqa: PLR0913 (the form of a partition, and its knobs)
    tasks: Sequence[Task],
    client_id: int,
    num_clients: int,
    *,
    seed: int,
    tasks_per_client: int,
    success_std: float,
    trajectories_file: str,
) -> Shard:
    """Exactly `tasks_per_client` tasks, of which a Beta-distributed share (mean 1/2) is easy.

    `success_std` is a concentration: 256 gives nearly equal difficulty, 1 extreme. The variance of the share is
    `1 / 4 / (success_std + 1)` in expectation. Together the clients hold every easy task; hard ones fill up.
    Easy tasks are those that a reference policy solved, by the labels in `trajectories_file` (`read_labels`).

    Raises:
        ConfigError: if a knob is out of range, there is no such file or its labels are of other tasks, or a client's
            quota exceeds the easy or the hard tasks there are.
        DataError: if the labels cannot be read.
    """
    check_count("tasks_per_client", tasks_per_client, 2, len(tasks), "half of a client's tasks are easy, on average")
    check_number("success_std", success_std, 1e-3, 1e6)
    easy = easy_tasks(tasks, _labels(tasks, trajectories_file))
    _check_quotas(easy, num_clients, tasks_per_client, success_std, seed)
    held = holdings(easy.tobytes(), num_clients, tasks_per_client, success_std, seed)
    return Shard(client_id, tuple(tasks[i].id for i in np.flatnonzero(held[client_id]).tolist()))


def _labels(tasks: Sequence[Task], trajectories_file: str) -> Mapping[str, bool]:
    key = "partition.trajectories_file"
    if not Path(trajectories_file).is_file():
        fix = "no such file; hardness needs success labels, which `python -m flwr_agent labels` makes"
        raise ConfigError(key, trajectories_file, fix)
    labels = read_labels(trajectories_file)
    check_labels(labels, tasks, key, trajectories_file)
    return labels


def _quotas(num_clients: int, tasks_per_client: int, success_std: float, rng: np.random.Generator) -> Sizes:
    return beta_sizes(num_clients, 0, tasks_per_client // 2, tasks_per_client, success_std, rng)


def _check_quotas(easy: np.ndarray, num_clients: int, tasks_per_client: int, success_std: float, seed: int) -> None:
    quotas = _quotas(num_clients, tasks_per_client, success_std, np.random.default_rng(seed))
    num_easy = int(easy.sum())
    wanted = {
        "easy": (int(quotas.max()), num_easy),
        "hard": (tasks_per_client - int(quotas.min()), len(easy) - num_easy),
    }
    for kind, (quota, there_are) in wanted.items():
        if quota > there_are:
            raise ConfigError(
                "partition.tasks_per_client",
                tasks_per_client,
                f"one client's quota is {quota} {kind} tasks and the labels leave {there_are}; lower it",
            )


@lru_cache(maxsize=4)
def holdings(easy: bytes, num_clients: int, tasks_per_client: int, success_std: float, seed: int) -> Holdings:
    """The whole federation's assignment `[C, n]`; `easy` is the mask over the n tasks, one byte each.

    The hard fills of all clients are drawn in order from the one stream, so that clients of equal quota differ.
    """
    rng = np.random.default_rng(seed)
    mask = np.frombuffer(easy, dtype=np.bool_)
    easy_at, hard_at = np.flatnonzero(mask), np.flatnonzero(~mask)
    quotas = _quotas(num_clients, tasks_per_client, success_std, rng)
    held = np.zeros((num_clients, len(mask)), dtype=np.bool_)
    held[:, easy_at] = assign_with_overlap(len(easy_at), quotas, rng)
    for client, quota in enumerate(quotas):
        if quota < tasks_per_client:
            held[client, hard_at[rng.choice(len(hard_at), tasks_per_client - quota, replace=False)]] = True
    return held
