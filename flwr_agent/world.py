"""From a configuration to what it names: the environment adapter and a client's shard."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from envs import partition, registry
from envs.base import EnvAdapter, Shard, Task, Variant
from flwr_agent.config import RunConfig


def to_adapter(config: RunConfig, variant: Variant | None = None) -> EnvAdapter:
    """The environment of a run, in its prompt style and in one client's world.

    Raises:
        ConfigError: no such environment, or it is not installed.
    """
    settings = _used(config.env, registry.knobs(config.env.name))
    return registry.create(config.env.name, settings, style=config.prompt.style, variant=variant)


def to_shard(config: RunConfig, tasks: Sequence[Task], client_id: int) -> Shard:
    """A client's tasks and world; every client computes the same partition.

    Raises:
        ConfigError: no such strategy, or knobs that do not fit the tasks.
    """
    strategy = config.partition.strategy
    knobs = _used(config.partition, partition.knobs(strategy))
    return partition.shard(tasks, client_id, config.federation.total_clients, strategy, **knobs)


def _used(section: Any, names: frozenset[str]) -> dict[str, Any]:
    return {name: getattr(section, name) for name in names if hasattr(section, name)}
