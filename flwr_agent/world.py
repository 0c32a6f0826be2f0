"""From a configuration to what it names: the environment adapter, a client's shard and its world."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from envs import partition, registry
from envs.base import EnvAdapter, Shard, Task, Variant
from flwr_agent import settings
from flwr_agent.config import EnvConfig, PartitionConfig, RunConfig
from flwr_agent.errors import ConfigError
from flwr_agent.modes import CENTRALIZED

_NOT_KNOBS = frozenset({"name", "strategy", "settings"})
"""Keys of the sections that choose, and are never handed to what is chosen."""


def to_adapter(config: RunConfig, variant: Variant | None = None) -> EnvAdapter:
    """The environment of a run, in its prompt style and in one client's world.

    Raises:
        ConfigError: no such environment, or it is not installed.
    """
    name = config.env.name
    used = _used("env", name, config.env, registry.knobs(name))
    return registry.create(name, used, style=config.prompt.style, variant=variant)


def to_shard(config: RunConfig, tasks: Sequence[Task], client_id: int) -> Shard:
    """A client's tasks and world; every client computes the same partition.

    A centralized run holds the whole pool in the standard world, whatever the partition it is a baseline of.

    Raises:
        ConfigError: no such strategy, or knobs that do not fit the tasks.
    """
    if config.federation.mode == CENTRALIZED:
        return Shard(client_id, tuple(task.id for task in tasks))
    strategy = config.partition.strategy
    num_clients = config.federation.total_clients or client_id + 1
    return partition.shard(tasks, client_id, num_clients, strategy, **to_knobs(config))


def to_knobs(config: RunConfig) -> dict[str, Any]:
    """The values of the partition strategy's knobs; one of a third party's own that was left out has its default.

    Raises:
        ConfigError: no such strategy, or a setting that it does not take.
    """
    strategy = config.partition.strategy
    return _used("partition", strategy, config.partition, partition.knobs(strategy))


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


def _used(section: str, chosen: str, values: EnvConfig | PartitionConfig, names: frozenset[str]) -> dict[str, Any]:
    """The section's keys that `chosen` takes, and what `settings` holds for it."""
    keys = {field.name for field in dataclasses.fields(values)} - _NOT_KNOBS
    own = settings.to_mapping(values.settings)
    for name, value in own.items():
        if name not in names:
            fix = f"{chosen} takes no such setting"
            raise ConfigError(f"{section}.settings.{name}", value, fix, allowed=names - keys - registry.SHARED)
        if name in keys:
            raise ConfigError(f"{section}.settings.{name}", value, f"write {section}.{name} instead")
    return {name: getattr(values, name) for name in names & keys} | own
