"""From the configuration to a client's shard: the one place that hands partition keys to a strategy."""

from __future__ import annotations

from collections.abc import Sequence

from envs.base import Shard, Task
from envs.partition import knobs, shard
from flwr_agent.config import KEYS, RunConfig
from flwr_agent.errors import ConfigError

PREFIX = "partition."


def client_shard(config: RunConfig, tasks: Sequence[Task], client_id: int) -> Shard:
    """The tasks and the world of one client, from the training tasks in canonical order.

    The partition has its own fixed seed: runs that differ only in `seed` share one federation.

    Raises:
        ConfigError: see `envs.partition.shard`.
        DataError: if a file that the strategy reads is malformed.
    """
    wanted = knobs(config.partition.strategy)
    values = {knob: getattr(config.partition, knob) for knob in sorted(wanted) if PREFIX + knob in KEYS}
    return shard(tasks, client_id, config.federation.total_clients, config.partition.strategy, **values)


def check_partition(config: RunConfig) -> None:
    """Refuse an unknown strategy, and a partition key that is set although the strategy does not use it.

    Raises:
        ConfigError: naming the key and the strategy's own knobs.
    """
    used = knobs(config.partition.strategy)
    for key, value in config.flat().items():
        knob = key.removeprefix(PREFIX)
        if key in (knob, "partition.strategy") or knob in used or value == KEYS[key].default:
            continue
        fix = f"partition.strategy={config.partition.strategy} does not use it; leave it unset"
        raise ConfigError(key, value, f"{fix} (its knobs: {', '.join(sorted(used)) or 'none'})")
