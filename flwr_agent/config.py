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
from typing import Any, get_type_hints

from flwr_agent.errors import ConfigError
from flwr_agent.seeds import MAX_EPOCH_ROWS

Scalar = bool | int | float | str


def _key(
    default: Any,
    doc: str,
    *,
    allowed: tuple[str, ...] = (),
    low: float | None = None,
    high: float | None = None,
    objective: bool = False,
) -> Any:
    """A config field: its documentation, its range, and whether changing it changes what is optimised."""
    meta = {"doc": doc, "allowed": allowed, "low": low, "high": high, "objective": objective}
    return field(default=default, metadata=meta)


@dataclass(frozen=True, kw_only=True, slots=True)
class FederationConfig:
    """Who takes part, how often, and what happens when some do not answer."""

    total_clients: int = _key(2, "clients in the federation", low=1, objective=True)
    clients_per_round: int = _key(2, "clients asked each round", low=1, objective=True)
    rounds: int = _key(8, "federated rounds", low=1)
    epochs_per_round: int = _key(5, "rollout-and-update steps of a client in one round", low=1, objective=True)
    min_clients: int = _key(1, "replies below which a round fails and the run stops", low=1)
    round_timeout_s: float = _key(3600.0, "seconds a round waits for replies", low=1)
    weights: str = _key("uniform", "weight of a client in the average", allowed=("uniform", "examples"), objective=True)


@dataclass(frozen=True, kw_only=True, slots=True)
class StrategyConfig:
    """How updates become a model."""

    name: str = _key("fedavg", "aggregation strategy: fedavg, fedprox or module:Class", objective=True)
    prox_mu: float = _key(0.0, "FedProx's proximal coefficient mu", low=0, objective=True)


@dataclass(frozen=True, kw_only=True, slots=True)
class AlgorithmConfig:
    """The reinforcement-learning objective."""

    name: str = _key("grpo", "learning algorithm", allowed=("grpo",), objective=True)
    group_size: int = _key(8, "episodes per task whose returns are compared", low=2, objective=True)
    kl_coef: float = _key(0.0, "weight of the k3 KL estimate to the base model", low=0, objective=True)
    clip: float = _key(0.2, "PPO ratio clip epsilon", low=0, objective=True)
    group_stats: str = _key(
        "rows",
        "mean and std over all turn rows of a group, or over its episodes",
        allowed=("rows", "episodes"),
        objective=True,
    )
    episode_weight: str = _key(
        "rows", "every row counts alike, or every episode does", allowed=("rows", "equal"), objective=True
    )
    baseline: str = _key(
        "group",
        "returns are compared with the group's mean, or taken as they are (imitation of what succeeded)",
        allowed=("group", "none"),
        objective=True,
    )
    scale_rewards: str = _key(
        "std", "divide advantages by the group's standard deviation, or not", allowed=("std", "none"), objective=True
    )
    reward_scale: float = _key(10.0, "training reward of a won episode", low=0, objective=True)
    invalid_penalty: float = _key(0.1, "taken from a training row whose answer broke the format", low=0, objective=True)
    reward: str = _key(
        "success",
        "training reward: a win only, or the environment's own score",
        allowed=("success", "score", "shuffled"),
        objective=True,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainerConfig:
    """The optimiser and the shape of one step."""

    lr: float = _key(4e-4, "AdamW learning rate", low=0, objective=True)
    weight_decay: float = _key(0.01, "AdamW weight decay", low=0, objective=True)
    max_grad_norm: float = _key(1.0, "gradient norm clip; 0 switches it off", low=0, objective=True)
    tasks_per_step: int = _key(8, "tasks rolled out before each update (x group_size episodes)", low=1, objective=True)
    minibatch_rows: int = _key(0, "rows per optimizer step; 0 = all rows of the rollout", low=0, objective=True)
    micro_rows: int = _key(64, "rows per forward; changes speed and memory, never the result", low=1)
    epochs: int = _key(1, "passes over the rows of one rollout", low=1, objective=True)
    optimizer_reset: str = _key(
        "per_round", "when the optimizer's state starts from zero", allowed=("per_round", "never"), objective=True
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelConfig:
    """The policy."""

    path: str = _key("tiny", "`tiny` (made here), a folder, or a Hugging Face id of a causal LM", objective=True)


@dataclass(frozen=True, kw_only=True, slots=True)
class RolloutConfig:
    """How the policy acts while it learns."""

    mode: str = _key("windowed", "one row per turn, or one per episode", allowed=("windowed", "concat"), objective=True)
    history: int = _key(2, "past turns shown in a windowed prompt", low=0, objective=True)
    max_turns: int = _key(15, "actions per episode", low=1, objective=True)
    max_new_tokens: int = _key(16, "tokens of one answer", low=1, objective=True)
    max_prompt_tokens: int = _key(
        192,
        "tokens of one prompt; longer ones lose their left end, "
        "and a concat conversation ends beyond this + max_turns x max_new_tokens",
        low=8,
        objective=True,
    )
    temperature: float = _key(1.0, "training sampling temperature", low=1e-3, objective=True)
    engine: str = _key("transformers", "generator", allowed=("transformers",))
    schedule: str = _key("lockstep", "all live episodes move together", allowed=("lockstep",))


@dataclass(frozen=True, kw_only=True, slots=True)
class PromptConfig:
    """How an observation becomes a prompt."""

    style: str = _key(
        "compact",
        "`paper` (the published templates) or `compact` (for tiny models)",
        allowed=("paper", "compact"),
        objective=True,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class EnvConfig:
    """What the agent acts in; a key the chosen environment does not use is refused."""

    name: str = _key(
        "webshop",
        "environment: webshop, minihouse, tinyguess, alfworld, harbor, remote, an entry point or module:Class",
        objective=True,
    )
    data_path: str = _key("none", "folder with the user's own data, where the environment takes one", objective=True)
    goals: str = _key(
        "synthetic",
        "WebShop goals of the user's own data: generated from products, or written by people",
        allowed=("synthetic", "human"),
        objective=True,
    )
    search_return_n: int = _key(50, "products a WebShop search may return", low=1, objective=True)
    val_search_return_n: int = _key(50, "the same for held-out tasks, whatever the clients' own", low=1, objective=True)
    reward: str = _key(
        "strict",
        "WebShop reward: exact option values, or the published matching",
        allowed=("strict", "upstream"),
        objective=True,
    )
    workers: int = _key(2, "processes an environment with a heavy engine (alfworld) plays in", low=1)
    sandbox: str = _key("bwrap", "where Harbor commands run: bubblewrap or containers", allowed=("bwrap", "docker"))
    max_commands: int = _key(15, "Harbor commands after which the verifier judges unasked", low=1, objective=True)
    command_timeout_s: float = _key(30.0, "seconds a Harbor command may take", low=0.1)
    threshold: float = _key(1.0, "verifier reward from which a Harbor task counts as solved", low=0, objective=True)
    verifier: str = _key(
        "none", "who scores an episode at its end: none, module:function or the URL of a judge", objective=True
    )
    verifier_weight: float = _key(
        1.0, "the verifier's part of the reward; the rest is the environment's own", low=0, high=1, objective=True
    )
    url: str = _key("none", "remote: http://HOST:PORT of a served environment; several with commas share the episodes")
    token_file: str = _key(
        "auto", "remote: file with the servers' token; `auto` finds that of a server of this machine"
    )
    digest: str = _key("any", "remote: digest that the servers must have (they print it)", objective=True)
    timeout_s: float = _key(300.0, "remote: seconds one request may take, its repetitions included", low=0.1)


@dataclass(frozen=True, kw_only=True, slots=True)
class PartitionConfig:
    """Which tasks and which world each client gets."""

    strategy: str = _key("uniform", "partition of the training tasks", objective=True)
    tasks_per_client: int = _key(100, "tasks a client holds at least", low=1, objective=True)
    omega: float = _key(
        0.5, "preference: skew of a client's category mix, 0 none, 1 one category", low=0, high=1, objective=True
    )
    size_std: float = _key(
        1.0, "coverage: concentration of shard sizes, 256 nearly equal, 1 extreme", low=1e-3, objective=True
    )
    size_mean: int = _key(500, "coverage: mean shard size", low=1, objective=True)
    size_max: int = _key(1000, "coverage: largest shard size", low=1, objective=True)
    success_std: float = _key(
        1.0, "hardness: concentration of the easy share, 256 nearly equal, 1 extreme", low=1e-3, objective=True
    )
    trajectories_file: str = _key("none", "hardness: success labels of a reference policy (JSON)", objective=True)
    env_div: float = _key(
        0.7,
        "catalog_split, scene_disjoint: 0 the same world for all, 1 independent worlds",
        low=0,
        high=1,
        objective=True,
    )
    keep_ratio: float = _key(
        0.7, "catalog_split: share of the other products a client's shop keeps", low=0, high=1, objective=True
    )
    variant_n: int = _key(
        0, "bm25_*, lookalike, rank_wrapper, *_variant: worlds in use; 0 is the arm's own number", low=0, objective=True
    )
    scenes_per_client: int = _key(8, "scene_disjoint: scenes a client plays in", low=1, objective=True)


@dataclass(frozen=True, kw_only=True, slots=True)
class EvaluationConfig:
    """Held-out success, on tasks no client trains on."""

    where: str = _key("server", "who plays the held-out tasks", allowed=("server", "client", "off"))
    tasks: int = _key(256, "held-out tasks", low=1)
    temperature: float = _key(0.4, "sampling temperature of the sampled score", low=1e-3)
    greedy: bool = _key(True, "also score greedy decoding")
    every: int = _key(1, "rounds between evaluations (round 0 and the last are always scored)", low=1)


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerConfig:
    """Where the heavy half of a client runs."""

    mode: str = _key(
        "inline",
        "in the ClientApp's process, or in a process that outlives its messages",
        allowed=("inline", "process"),
    )
    python: str = _key("same", "interpreter of the worker process")
    torch_threads: int = _key(1, "intra-op threads; part of what makes two runs equal bit for bit", low=1)
    idle_timeout_s: float = _key(600.0, "seconds without a request after which a worker process ends", low=1)


@dataclass(frozen=True, kw_only=True, slots=True)
class RunConfig:
    """Everything a run is made of.

    Example:
        >>> resolve({"federation.rounds": 3}).federation.rounds
        3
    """

    seed: int = _key(42, "base seed of client choice, rollouts and updates", low=0, objective=True)
    output_dir: str = _key("auto", "run folder; `auto` names one after the preset and the seed")
    fresh: bool = _key(False, "archive what the run folder holds and start at round 0")
    federation: FederationConfig = field(default_factory=FederationConfig)
    strategy: StrategyConfig = field(default_factory=StrategyConfig)
    algorithm: AlgorithmConfig = field(default_factory=AlgorithmConfig)
    trainer: TrainerConfig = field(default_factory=TrainerConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    rollout: RolloutConfig = field(default_factory=RolloutConfig)
    prompt: PromptConfig = field(default_factory=PromptConfig)
    env: EnvConfig = field(default_factory=EnvConfig)
    partition: PartitionConfig = field(default_factory=PartitionConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    worker: WorkerConfig = field(default_factory=WorkerConfig)

    def flat(self) -> dict[str, Scalar]:
        """Dotted key -> value, in the order of the tree."""
        return {key: _get(self, key) for key in KEYS}

    def identity(self) -> str:
        """Digest of every key that a client's work may depend on, its speed included; folders are outside it."""
        values = {key: value for key, value in self.flat().items() if key not in ("output_dir", "fresh")}
        return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()

    def fingerprint(self) -> str:
        """Digest of every key that changes what is optimised; folders, timeouts and reports are outside it."""
        values = {key: _get(self, key) for key, spec in KEYS.items() if spec.metadata["objective"]}
        values["worker.torch_threads"] = self.worker.torch_threads
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


def _get(config: RunConfig, key: str) -> Scalar:
    value: Any = config
    for part in key.split("."):
        value = getattr(value, part)
    return value


KEYS: dict[str, dataclasses.Field[Any]] = _walk(RunConfig)
"""Every dotted key of the tree with its field (type, default, documentation, range)."""


def resolve(*layers: Mapping[str, Any]) -> RunConfig:
    """Lay flat dicts over the defaults, later ones on top; `""` means unset.

    Raises:
        ConfigError: an unknown key, a value of the wrong type or out of range, or keys that contradict each other.
    """
    flat: dict[str, Scalar] = {}
    for layer in layers:
        for key, value in layer.items():
            if key not in KEYS:
                raise ConfigError(key, value, "unknown key" + _nearest(key))
            if not isinstance(value, str) or value != "":
                flat[key] = _checked(key, value)
    config = _build(RunConfig, flat, "")
    _check_together(config)
    return config


def _nearest(key: str) -> str:
    import difflib

    tails = {k.rpartition(".")[2]: k for k in KEYS}
    near = difflib.get_close_matches(key, KEYS, n=1) or [
        tails[t] for t in difflib.get_close_matches(key.rpartition(".")[2], tails, n=1)
    ]
    return f"; did you mean {near[0]}?" if near else "; see docs/configuration.md for all keys"


def _checked(key: str, value: Any) -> Scalar:
    spec = KEYS[key]
    if spec.type is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if type(value) is not spec.type:
        raise ConfigError(key, value, f"must be of type {spec.type.__name__}, not {type(value).__name__}")
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
    if fed.clients_per_round > fed.total_clients:
        raise ConfigError(
            "federation.clients_per_round",
            fed.clients_per_round,
            f"cannot exceed federation.total_clients={fed.total_clients}",
        )
    if fed.min_clients > fed.clients_per_round:
        raise ConfigError(
            "federation.min_clients",
            fed.min_clients,
            f"cannot exceed federation.clients_per_round={fed.clients_per_round}",
        )
    rows = config.trainer.tasks_per_step * fed.epochs_per_round
    if rows > MAX_EPOCH_ROWS:
        raise ConfigError(
            "trainer.tasks_per_step",
            config.trainer.tasks_per_step,
            f"times federation.epochs_per_round={fed.epochs_per_round} exceeds {MAX_EPOCH_ROWS} task seeds a client-round",
        )
    if config.strategy.prox_mu and config.strategy.name == "fedavg":
        raise ConfigError(
            "strategy.prox_mu",
            config.strategy.prox_mu,
            "fedavg has no proximal term; set strategy.name=fedprox or leave it unset",
        )
    if config.algorithm.baseline == "none" and config.algorithm.scale_rewards == "std":
        raise ConfigError(
            "algorithm.scale_rewards",
            "std",
            "returns that are not centred (algorithm.baseline=none) are not scaled by their spread; use none",
        )
    if config.trainer.optimizer_reset == "never" and fed.total_clients > 1:
        raise ConfigError(
            "trainer.optimizer_reset",
            "never",
            "one process serves many clients, so what is kept would leak between them; set federation.total_clients=1",
        )
