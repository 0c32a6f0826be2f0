"""The table of partition strategies, and the one door through which a client gets its shard.

To add one without a fork: write a function of the form `Partition`, then name it `module:function` in
`partition.strategy` or publish it under the entry-point group `flwr_agent.partitions`.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Sequence
from importlib.metadata import entry_points
from typing import Any, cast

from envs import named
from envs.base import Shard, Task
from flwr_agent.errors import ConfigError

GROUP = "flwr_agent.partitions"

STRATEGIES = {
    "uniform": "envs.partition.uniform:uniform",
    "preference": "envs.partition.preference:preference",
    "coverage": "envs.partition.coverage:coverage",
    "hardness": "envs.partition.hardness:hardness",
    "task_disjoint": "envs.partition.uniform:uniform",
    "catalog_split": "envs.partition.catalog:catalog_split",
    "scene_disjoint": "envs.partition.scenes:scene_disjoint",
    "bm25_field_subset": "envs.partition.variants:bm25_field_subset",
    "bm25_reweight": "envs.partition.variants:bm25_reweight",
    "lookalike": "envs.partition.variants:lookalike",
    "rank_wrapper": "envs.partition.variants:rank_wrapper",
    "obs_variant": "envs.partition.variants:obs_variant",
    "dyn_variant": "envs.partition.variants:dyn_variant",
    "goal_variant": "envs.partition.variants:goal_variant",
    "site": "envs.partition.uniform:site",
}
"""Name -> where its function lives; imported only when asked for. `task_disjoint` is the control of `catalog_split`:
the same tasks in the full shop."""


Partition = Callable[..., Shard]
"""A strategy: `(tasks, client_id, num_clients, *, seed, knob, ...) -> Shard`, a pure function of its arguments.

Its keyword-only parameters beside `seed` are its knobs, `partition.<name>` in the configuration.

Example:
    >>> def first_letters(tasks, client_id, num_clients, *, seed, letters="abc"):
    ...     mine = [task.id for task in tasks if letters.index(task.id[0]) % num_clients == client_id]
    ...     return Shard(client_id, tuple(mine))
"""


def shard(
    tasks: Sequence[Task], client_id: int, num_clients: int, strategy: str, *, seed: int = 42, **values: Any
) -> Shard:
    """The tasks and the world of one client under `strategy`.

    Args:
        tasks: The training tasks in the environment's canonical order.
        client_id: 0-based.
        num_clients: Clients in the federation.
        strategy: A name of the table, an entry point, or `module:function`.
        seed: Fixes the partition; not the run's seed, so that repeated runs share one federation.
        **values: Exactly the strategy's `knobs`, except those that have a default.

    Raises:
        ConfigError: an unknown strategy, a knob it does not have or lacks, a value out of range, a client that does
            not exist, or a shard that is empty or holds what the pool does not.
    """
    if not 0 <= client_id < num_clients:
        raise ConfigError("client_id", client_id, f"must be from 0 to {num_clients - 1} (federation.total_clients - 1)")
    partition = find(strategy)
    _check_knobs(strategy, partition, values)
    with named.blamed("partition.strategy", strategy, f"fails for client {client_id}"):
        found = partition(tasks, client_id, num_clients, seed=seed, **values)
    _check_shard(strategy, found, tasks)
    return found


def knobs(strategy: str) -> frozenset[str]:
    """Names of the knobs a strategy takes, without the `partition.` prefix.

    Example:
        >>> sorted(knobs("uniform"))
        ['tasks_per_client']
    """
    return frozenset(_knob_defaults(find(strategy)))


def find(strategy: str) -> Partition:
    """The function behind a strategy's name.

    Raises:
        ConfigError: if there is none, with the nearest name.
    """
    if strategy in STRATEGIES:
        return _imported(STRATEGIES[strategy], strategy)
    if ":" in strategy:
        return _imported(strategy, strategy)
    plugins = {point.name: point for point in entry_points(group=GROUP)}
    if strategy in plugins:
        return _imported(plugins[strategy].value, strategy)
    raise ConfigError(
        "partition.strategy", strategy, "no such strategy, and not module:function", allowed=[*STRATEGIES, *plugins]
    )


def _imported(target: str, strategy: str) -> Partition:
    found = named.load("partition.strategy", strategy, target)
    if not callable(found):
        raise ConfigError("partition.strategy", strategy, f"{target} is not a function")
    return cast("Partition", found)


def _knob_defaults(partition: Partition) -> dict[str, Any]:
    parameters = inspect.signature(partition).parameters.values()
    return {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY and p.name != "seed"}


def _check_knobs(strategy: str, partition: Partition, values: dict[str, Any]) -> None:
    defaults = _knob_defaults(partition)
    for name, value in values.items():
        if name not in defaults:
            raise ConfigError(
                f"partition.{name}",
                value,
                f"strategy {strategy} does not use it (its knobs: {', '.join(sorted(defaults)) or 'none'})",
            )
    for name, default in defaults.items():
        if name not in values and default is inspect.Parameter.empty:
            own = "" if strategy in STRATEGIES else "settings."
            raise ConfigError(f"partition.{own}{name}", "", f"strategy {strategy} needs a value")


def _check_shard(strategy: str, found: Shard, tasks: Sequence[Task]) -> None:
    extra = Counter(found.task_ids) - Counter(task.id for task in tasks)
    if extra:
        raise ConfigError(
            "partition.strategy",
            strategy,
            f"gives client {found.client_id} task {next(iter(extra))!r} more often than the pool holds it",
        )
    if not found.task_ids:
        raise ConfigError("partition.strategy", strategy, f"gives client {found.client_id} no task")
