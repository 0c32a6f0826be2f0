"""From a configuration to what it names: the environment adapter, a client's shard and its world."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from envs import partition, registry
from envs.base import EnvAdapter, Shard, Task, Variant
from flwr_agent.config import RunConfig
from flwr_agent.errors import ConfigError
from flwr_agent.modes import CENTRALIZED


def to_adapter(config: RunConfig, variant: Variant | None = None) -> EnvAdapter:
    """The environment of a run, in its prompt style and in one client's world.

    Raises:
        ConfigError: no such environment, or it is not installed.
    """
    settings = _used(config.env, registry.knobs(config.env.name))
    return registry.create(config.env.name, settings, style=config.prompt.style, variant=variant)


def to_shard(config: RunConfig, tasks: Sequence[Task], client_id: int) -> Shard:
    """A client's tasks and world; every client computes the same partition.

    A centralized run holds the whole pool in the standard world, whatever the partition it is a baseline of.

    Raises:
        ConfigError: no such strategy, or knobs that do not fit the tasks.
    """
    strategy = "uniform" if config.federation.mode == CENTRALIZED else config.partition.strategy
    knobs = _used(config.partition, partition.knobs(strategy))
    return partition.shard(tasks, client_id, config.federation.total_clients, strategy, **knobs)


def to_world(config: RunConfig, shard: Shard) -> EnvAdapter:
    """The environment as a client finds it: in its own variant, with every task of its shard.

    Raises:
        ConfigError: the environment has no such variant, or its variant lacks what a task of the shard needs.
    """
    adapter = to_adapter(config, shard.variant)
    lost = set(shard.task_ids).difference(task.id for task in adapter.tasks("train"))
    if lost:
        fix = f"client {shard.client_id}'s world cannot serve {len(lost)} of its tasks ({min(lost)}, …)"
        raise ConfigError("partition.strategy", config.partition.strategy, fix)
    return adapter


def _used(section: Any, names: frozenset[str]) -> dict[str, Any]:
    return {name: getattr(section, name) for name in names if hasattr(section, name)}
