"""What can be known to be wrong before any client starts: names, knobs, files and folders behind the configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Protocol
from urllib.parse import urlsplit

from envs import named, partition, registry
from flwr_agent import critics, faults, policy, tracking, wire, writable
from flwr_agent.config import KEYS, RunConfig
from flwr_agent.errors import ConfigError
from flwr_agent.modes import FEDERATED
from flwr_agent.rl import spawn
from flwr_agent.world import to_adapter, to_shard, to_world

GRPO_KEYS = {
    f"algorithm.{name}" for name in ("advantage", "group_stats", "episode_weight", "baseline", "scale_rewards")
}
PPO_KEYS = {
    *(f"algorithm.{name}" for name in ("credit", "gamma", "gae_lambda", "whiten", "value_clip", "critic_loss")),
    *("trainer.critic_lr", "trainer.critic_max_grad_norm", "model.critic_path"),
}


class Strategy(Protocol):
    """An aggregation strategy, as far as it is checked here."""

    knobs: ClassVar[frozenset[str]]
    """Names under `strategy.` that it uses."""


def check(config: RunConfig, explicit: Mapping[str, Any], *, load_strategy: Callable[[RunConfig], Strategy]) -> None:
    """Refuse a run that cannot work.

    Args:
        config: the resolved configuration.
        explicit: dotted key -> value of what the preset and the overrides set; a knob among them must be used.
        load_strategy: finds the aggregation strategy, or raises.

    Raises:
        ConfigError: names the key and the fix.
        DataError: names the file and the field.
    """
    check_knobs(config, explicit)
    strategy = load_strategy(config)
    if config.federation.mode == FEDERATED:
        _check_knobs("strategy", config.strategy.name, explicit, strategy.knobs | {"name"})
    if config.algorithm.advantage != "group":
        named.load("algorithm.advantage", config.algorithm.advantage, config.algorithm.advantage)
    policy.check_policy(config)
    if config.algorithm.name == "ppo":
        critics.find(config)
    _check_folder(config.output_dir)
    _check_worker(config)
    tracking.check(config)


def check_knobs(config: RunConfig, explicit: Mapping[str, Any]) -> None:
    """Refuse a knob that was set and is not used, and a fault schedule that is none of this federation.

    Raises:
        ConfigError: names the key and those that are used.
        DataError: names the schedule and its entry.
    """
    faults.scheduled(config)
    _check_knobs("env", config.env.name, explicit, registry.knobs(config.env.name) | {"name", "settings"})
    known = partition.knobs(config.partition.strategy) | {"strategy", "settings"}
    _check_knobs("partition", config.partition.strategy, explicit, known)
    _check_knobs("privacy", "a run without noise and mods", explicit, wire.used(config))
    unused = GRPO_KEYS if config.algorithm.name == "ppo" else PPO_KEYS
    for key in sorted(explicit.keys() & unused):
        fix = f"algorithm.name={config.algorithm.name} does not use this key; leave it unset"
        raise ConfigError(key, explicit[key], fix)


def check_world(config: RunConfig) -> None:
    """Load the environment's tasks, cut every client's shard and open its world, where the tasks are on this machine.

    Raises:
        ConfigError: a setting that the environment or the partition refuses, or a world that lacks a task of its shard.
        DataError: a data file is malformed.
    """
    with named.blamed("env.name", config.env.name, "cannot be used"):
        _check_world(config)


def _check_world(config: RunConfig) -> None:
    if config.partition.strategy == "site" and config.evaluation.where != "server":
        return  # the tasks are on other machines
    adapter = to_adapter(config)
    if config.evaluation.where != "off" and config.evaluation.tasks > (held_out := len(adapter.tasks("val"))):
        raise ConfigError(
            "evaluation.tasks", config.evaluation.tasks, f"{config.env.name} has {held_out} held-out tasks"
        )
    tasks = adapter.tasks("train")
    for client_id in range(config.federation.total_clients):
        shard = to_shard(config, tasks, client_id)
        if shard.variant is not None:
            to_world(config, shard)


def check_interpreter(config: RunConfig) -> None:
    """Refuse a run whose worker, on this machine, could not be imported.

    Raises:
        ConfigError: `worker.python` cannot be started or lacks a package; no GPU has been touched.
    """
    if config.worker.python != "same" or config.rollout.engine == "vllm":
        spawn.check_python(config.worker.python, spawn.needed(config))


def _check_knobs(section: str, chosen: str, explicit: Mapping[str, Any], known: frozenset[str]) -> None:
    for key, value in explicit.items():
        head, _, name = key.partition(".")
        if head == section and name not in known:
            names = sorted(known - {"name", "strategy", "settings"})
            own = (f"{section}.{k}" if f"{section}.{k}" in KEYS else f"{section}.settings.{k}" for k in names)
            used = ", ".join(own) or "none"
            raise ConfigError(key, value, f"{chosen} does not use this key; leave it unset (it uses: {used})")


def _check_folder(output_dir: str) -> None:
    if reason := writable.why_no_folder(Path(output_dir)):
        raise ConfigError("output_dir", output_dir, f"{reason}; choose another folder")


def _check_worker(config: RunConfig) -> None:
    worker, rollout = config.worker, config.rollout
    if worker.python != "same" and worker.mode == "inline":
        fix = "an inline worker has no interpreter; set worker.mode=process"
        raise ConfigError("worker.python", worker.python, fix)
    if worker.gpus > 1 and worker.gpus != int(worker.gpus):
        raise ConfigError("worker.gpus", worker.gpus, "must be a fraction of one GPU or a whole number of them")
    if rollout.server_url != "none" and rollout.engine != "vllm":
        raise ConfigError("rollout.server_url", rollout.server_url, "is an address of vLLM; set rollout.engine=vllm")
    if rollout.server_url != "none" and not _is_http(rollout.server_url):
        raise ConfigError("rollout.server_url", rollout.server_url, "must be http://HOST:PORT, or `none`")


def _is_http(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
