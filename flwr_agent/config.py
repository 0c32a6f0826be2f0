"""The run's configuration: one frozen tree, parsed once at the edge and passed inward as objects.

Keys are dotted and snake_case and have one name from YAML to loss. Precedence: defaults < preset < overrides.
An absent value is never the empty string; `none`, `auto` and `uniform` are words.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast, get_type_hints

from flwr_agent import settings, wire
from flwr_agent.errors import ConfigError
from flwr_agent.modes import FEDERATED, LOCAL, settled
from flwr_agent.output_sections import CheckpointConfig, ReportConfig
from flwr_agent.sections import (
    AlgorithmConfig,
    EnvConfig,
    EvaluationConfig,
    FederationConfig,
    LoraConfig,
    ModelConfig,
    PartitionConfig,
    PromptConfig,
    RolloutConfig,
    TrainerConfig,
    WorkerConfig,
    knob,
)
from flwr_agent.seeds import MAX_EPOCH_ROWS
from flwr_agent.sharing import PrivacyConfig, StrategyConfig

__all__ = [
    "KEYS",
    "AlgorithmConfig",
    "CheckpointConfig",
    "EnvConfig",
    "EvaluationConfig",
    "FederationConfig",
    "LoraConfig",
    "ModelConfig",
    "PartitionConfig",
    "PrivacyConfig",
    "PromptConfig",
    "ReportConfig",
    "RolloutConfig",
    "RunConfig",
    "Scalar",
    "StrategyConfig",
    "TrainerConfig",
    "WorkerConfig",
    "resolve",
]

Scalar = bool | int | float | str


@dataclass(frozen=True, kw_only=True, slots=True)
class RunConfig:
    """Everything a run is made of.

    Example:
        >>> resolve({"federation.rounds": 3}).federation.rounds
        3
    """

    seed: int = knob(42, "base seed of client choice, rollouts and updates", low=0, objective=True)
    output_dir: str = knob("auto", "run folder; `auto` names one after the preset and the seed")
    fresh: bool = knob(False, "archive what the run folder holds and start at round 0")
    federation: FederationConfig = field(default_factory=FederationConfig)
    strategy: StrategyConfig = field(default_factory=StrategyConfig)
    privacy: PrivacyConfig = field(default_factory=PrivacyConfig)
    algorithm: AlgorithmConfig = field(default_factory=AlgorithmConfig)
    trainer: TrainerConfig = field(default_factory=TrainerConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    rollout: RolloutConfig = field(default_factory=RolloutConfig)
    prompt: PromptConfig = field(default_factory=PromptConfig)
    env: EnvConfig = field(default_factory=EnvConfig)
    partition: PartitionConfig = field(default_factory=PartitionConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)
    worker: WorkerConfig = field(default_factory=WorkerConfig)
    report: ReportConfig = field(default_factory=ReportConfig)

    def flat(self) -> dict[str, Scalar]:
        """Dotted key -> value, in the order of the tree."""
        return {key: _get(self, key) for key in KEYS}

    def identity(self) -> str:
        """Digest of every key that a client's work may depend on, its speed included; folders are outside it."""
        values = {key: value for key, value in self.flat().items() if key not in ("output_dir", "fresh")}
        return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()

    def fingerprint(self) -> str:
        """Digest of every key that changes what is optimised; folders, timeouts and reports are outside it."""
        values = {key: _get(self, key) for key in DEFINING}
        return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def _walk(cls: type, prefix: str = "") -> dict[str, dataclasses.Field[Any]]:
    hints = get_type_hints(cls)
    found: dict[str, dataclasses.Field[Any]] = {}
    for spec in dataclasses.fields(cls):
        if dataclasses.is_dataclass(hints[spec.name]):
            found |= _walk(hints[spec.name], f"{prefix}{spec.name}.")
        else:
            spec.type = hints[spec.name]
            found[prefix + spec.name] = spec
    return found


def type_of(spec: dataclasses.Field[Any]) -> type:
    """The type of a key's values, which `KEYS` holds resolved."""
    return cast("type", spec.type)


def _get(config: RunConfig, key: str) -> Scalar:
    value: Any = config
    for part in key.split("."):
        value = getattr(value, part)
    return value


KEYS: dict[str, dataclasses.Field[Any]] = _walk(RunConfig)
"""Every dotted key of the tree with its field (type, default, documentation, range)."""
DEFINING = frozenset(key for key, spec in KEYS.items() if spec.metadata["objective"]) | {"worker.torch_threads"}
"""Keys that change what is learnt, or its bits."""

NOT_FINITE = ("inf", "infinity", "nan", ".inf", ".nan")
CUT_SAMPLING = ("rollout.top_p", "rollout.top_k", "rollout.min_p")


def resolve(*layers: Mapping[str, Any]) -> RunConfig:
    """Lay flat dicts over the defaults, later ones on top; `""` means unset.

    Raises:
        ConfigError: an unknown key, a value of the wrong type or out of range, or keys that contradict each other.
    """
    flat: dict[str, Scalar] = {}
    for layer in layers:
        for key, value in layer.items():
            if key in CUT_SAMPLING:
                fix = "training samples from the whole distribution, which is the one the trainer scores; leave it out"
                raise ConfigError(key, value, fix)
            if key not in KEYS:
                raise ConfigError(key, value, "unknown key" + _nearest(key))
            if not isinstance(value, str) or value != "":
                flat[key] = settings.to_text(key, value) if key in settings.KEYS else checked(key, value)
    config = settled(_build(RunConfig, flat, ""))
    _check_together(config)
    wire.check(config)
    return config


def _nearest(key: str) -> str:
    import difflib

    tails = {k.rpartition(".")[2]: k for k in KEYS}
    near = difflib.get_close_matches(key, KEYS, n=1) or [
        tails[t] for t in difflib.get_close_matches(key.rpartition(".")[2], tails, n=1)
    ]
    return f"; did you mean {near[0]}?" if near else "; see docs/configuration.md for all keys"


def checked(key: str, value: Any) -> Scalar:
    """The value that a key gets.

    Raises:
        ConfigError: it is of the wrong type, out of range, or no word of the key's.

    Example:
        >>> checked("trainer.lr", 1)
        1.0
    """
    spec, kind = KEYS[key], type_of(KEYS[key])
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if kind is float and isinstance(value, str) and value.lower().lstrip("+-") in NOT_FINITE:
        value = float(value.replace(".", ""))
    if type(value) is not kind:
        raise ConfigError(key, value, f"must be of type {kind.__name__}, not {type(value).__name__}")
    if isinstance(value, float) and not math.isfinite(value):
        raise ConfigError(key, value, "must be a finite number")
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise ConfigError(key, value, "must fit in 64 bits")
    low, high, allowed = (spec.metadata[name] for name in ("low", "high", "allowed"))
    if spec.type in (int, float) and not (low is None or value >= low):
        raise ConfigError(key, value, f"must be at least {low:g}")
    if spec.type in (int, float) and not (high is None or value <= high):
        raise ConfigError(key, value, f"must be at most {high:g}")
    if allowed and value not in allowed:
        raise ConfigError(key, value, "no such choice", allowed=allowed)
    return value


def _build(cls: type, flat: Mapping[str, Scalar], prefix: str) -> Any:
    hints = get_type_hints(cls)
    values: dict[str, Any] = {}
    for spec in dataclasses.fields(cls):
        key = prefix + spec.name
        if dataclasses.is_dataclass(hints[spec.name]):
            values[spec.name] = _build(hints[spec.name], flat, key + ".")
        elif key in flat:
            values[spec.name] = flat[key]
    return cls(**values)


def _check_together(config: RunConfig) -> None:
    fed = config.federation
    _check_who(fed)
    if not fed.total_clients and (config.partition.strategy != "site" or fed.mode != FEDERATED or fed.extra_clients):
        fix = "only a federation of sites with their own tasks (partition.strategy=site) may leave their number open"
        raise ConfigError("federation.total_clients", 0, fix)
    rows = config.trainer.tasks_per_step * fed.epochs_per_round
    if rows > MAX_EPOCH_ROWS:
        raise ConfigError(
            "trainer.tasks_per_step",
            config.trainer.tasks_per_step,
            f"times federation.epochs_per_round={fed.epochs_per_round} exceeds {MAX_EPOCH_ROWS} task seeds a client-round",
        )
    if config.report.episodes and config.evaluation.where != "server":
        raise ConfigError(
            "report.episodes",
            config.report.episodes,
            "episodes never leave a client; set evaluation.where=server, or leave it unset",
        )
    _check_algorithm(config)
    if config.algorithm.baseline == "none" and config.algorithm.scale_rewards == "std":
        raise ConfigError(
            "algorithm.scale_rewards",
            "std",
            "returns that are not centred (algorithm.baseline=none) are not scaled by their spread; use none",
        )
    if config.trainer.optimizer_reset == "never" and fed.mode == FEDERATED and fed.total_clients > 1:
        raise ConfigError(
            "trainer.optimizer_reset",
            "never",
            "the moments of different clients are not averaged; set federation.total_clients=1, or a baseline as "
            "federation.mode",
        )


def _check_who(fed: FederationConfig) -> None:
    if fed.local_client and fed.mode != LOCAL:
        raise ConfigError("federation.local_client", fed.local_client, "is the client of federation.mode=local alone")
    if fed.total_clients and fed.local_client >= fed.total_clients:
        raise ConfigError(
            "federation.local_client", fed.local_client, f"clients are 0 to {fed.total_clients - 1}; choose one"
        )
    if fed.min_clients > fed.clients_per_round:
        raise ConfigError(
            "federation.min_clients",
            fed.min_clients,
            f"cannot exceed federation.clients_per_round={fed.clients_per_round}",
        )
    if not fed.total_clients:
        return
    if fed.clients_per_round > fed.total_clients:
        raise ConfigError(
            "federation.clients_per_round",
            fed.clients_per_round,
            f"cannot exceed federation.total_clients={fed.total_clients}",
        )
    if (asked := fed.clients_per_round + fed.extra_clients) > fed.total_clients:
        raise ConfigError(
            "federation.extra_clients",
            fed.extra_clients,
            f"with clients_per_round makes {asked}, more than federation.total_clients={fed.total_clients}",
        )


def _check_algorithm(config: RunConfig) -> None:
    algorithm, rank = config.algorithm, config.model.lora.rank
    is_ppo, size = algorithm.name == "ppo", algorithm.group_size
    if is_ppo and size > 1:
        fix = (
            f"ppo compares no episodes; set it to 1 and trainer.tasks_per_step to {size} times as many (see preset ppo)"
        )
        raise ConfigError("algorithm.group_size", size, fix)
    if not is_ppo and size < 2:
        raise ConfigError("algorithm.group_size", size, "must be at least 2: grpo compares the episodes of a task")
    if is_ppo and rank:
        raise ConfigError("model.lora.rank", rank, "ppo trains a whole critic; use 0, or algorithm.name=grpo")
    if rank and algorithm.kl_anchor == "round":
        raise ConfigError("algorithm.kl_anchor", "round", "adapters are held to the model they adapt; use base")
    if not is_ppo and algorithm.credit == "chained":
        fix = "grpo compares whole episodes; use per_row, or algorithm.name=ppo"
        raise ConfigError("algorithm.credit", "chained", fix)
    if algorithm.dual_clip and algorithm.dual_clip <= 1 + algorithm.clip:
        fix = f"must be above 1 + algorithm.clip = {1 + algorithm.clip:g}, or 0"
        raise ConfigError("algorithm.dual_clip", algorithm.dual_clip, fix)
