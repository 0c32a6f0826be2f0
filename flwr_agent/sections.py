"""The sections of the configuration: every key with its default, meaning and range."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


def knob(
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

    mode: str = knob(
        "federated",
        "average clients, or a baseline with the same trainer: all tasks in one place, or one client on its own",
        allowed=("federated", "centralized", "local"),
        objective=True,
    )
    local_client: int = knob(0, "the client of mode=local", low=0, objective=True)
    budget: str = knob(
        "steps",
        "a baseline has the optimizer steps of one client, or also the samples of all clients of a round",
        allowed=("steps", "samples"),
        objective=True,
    )
    total_clients: int = knob(
        2,
        "clients in the federation; 0: whoever is connected (partition.strategy=site)",
        low=0,
        high=1_000_000,
        objective=True,
    )
    clients_per_round: int = knob(2, "clients asked each round", low=1, objective=True)
    rounds: int = knob(8, "federated rounds", low=1)
    epochs_per_round: int = knob(5, "rollout-and-update steps of a client in one round", low=1, objective=True)
    min_clients: int = knob(1, "replies below which a round fails and the run stops", low=1)
    round_timeout_s: float = knob(3600.0, "seconds a round waits for replies", low=1)
    connect_timeout_s: float = knob(120.0, "seconds a round waits for the nodes of its clients to connect", low=1)
    retries: int = knob(1, "times a client whose reply cannot be used is asked again within the round", low=0)
    extra_clients: int = knob(
        0, "clients asked beyond clients_per_round; the first clients_per_round usable replies count", low=0
    )
    faults: str = knob(
        "none", "YAML schedule of killed clients, rehearsed in simulation and with --deployment (docs/deployment.md)"
    )
    weights: str = knob(
        "uniform",
        "weight of a client in the average: uniform, examples (its training rows) or one number a client, as in 3,1",
        objective=True,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class AlgorithmConfig:
    """The reinforcement-learning objective."""

    name: str = knob(
        "grpo",
        "advantages from the group's other episodes (grpo), or from a critic that is federated beside the policy (ppo)",
        allowed=("grpo", "ppo"),
        objective=True,
    )
    group_size: int = knob(8, "episodes per task whose returns are compared; 1 with ppo", low=1, objective=True)
    kl_coef: float = knob(0.0, "weight of the k3 KL estimate to the anchor", low=0, high=1e6, objective=True)
    kl_anchor: str = knob(
        "base",
        "what the KL term holds the policy to: the model of round 0, or the one each round starts from",
        allowed=("base", "round"),
        objective=True,
    )
    entropy_coef: float = knob(0.0, "weight of the entropy bonus, a mean over tokens", low=0, high=1e6, objective=True)
    clip: float = knob(0.2, "PPO ratio clip epsilon", low=0, high=1e6, objective=True)
    dual_clip: float = knob(
        0.0, "largest ratio that counts at a negative advantage, above 1 + clip; 0 is none", low=0, objective=True
    )
    importance_cap: float = knob(
        2.0,
        "largest weight of a token whose sampler gave it another probability than the trainer; 0 weighs none",
        low=0,
        objective=True,
    )
    advantage: str = knob(
        "group",
        "grpo: how the rows of a group are credited: `group`, by its mean and spread, or module:function of one's own",
        objective=True,
    )
    group_stats: str = knob(
        "rows",
        "mean and std over all turn rows of a group, or over its episodes",
        allowed=("rows", "episodes"),
        objective=True,
    )
    episode_weight: str = knob(
        "rows", "every row counts alike, or every episode does", allowed=("rows", "equal"), objective=True
    )
    baseline: str = knob(
        "group",
        "returns are compared with the group's mean, or taken as they are (imitation of what succeeded)",
        allowed=("group", "none"),
        objective=True,
    )
    scale_rewards: str = knob(
        "std", "divide advantages by the group's standard deviation, or not", allowed=("std", "none"), objective=True
    )
    reward_scale: float = knob(10.0, "training reward of a won episode", low=0, objective=True)
    invalid_penalty: float = knob(0.1, "taken from a training row whose answer broke the format", low=0, objective=True)
    reward: str = knob(
        "success",
        "training reward: a win only, or the environment's own score",
        allowed=("success", "score", "shuffled"),
        objective=True,
    )
    credit: str = knob(
        "per_row",
        "ppo: every turn is a sequence that earns the episode's return, or the turns are one sequence that earns it once",
        allowed=("per_row", "chained"),
        objective=True,
    )
    gamma: float = knob(1.0, "ppo: discount per token", low=0, high=1, objective=True)
    gae_lambda: float = knob(
        1.0, "ppo: lambda of generalised advantage estimation, per token", low=0, high=1, objective=True
    )
    whiten: bool = knob(True, "ppo: centre and scale the advantages of all tokens of a rollout", objective=True)
    value_clip: float = knob(
        0.5,
        "ppo: how far a value may move from its old one before its error stops to fall; 0 is any",
        low=0,
        objective=True,
    )
    critic_loss: str = knob(
        "global_token_mean",
        "ppo: mean over all tokens of an optimizer step, or of the means of every four rows",
        allowed=("global_token_mean", "legacy_exact"),
        objective=True,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainerConfig:
    """The optimiser and the shape of one step."""

    lr: float = knob(4e-4, "AdamW learning rate", low=0, high=1e3, objective=True)
    weight_decay: float = knob(0.01, "AdamW weight decay", low=0, high=1e3, objective=True)
    max_grad_norm: float = knob(1.0, "gradient norm clip; 0 switches it off", low=0, objective=True)
    critic_lr: float = knob(1e-3, "ppo: AdamW learning rate of the critic", low=0, high=1e3, objective=True)
    critic_max_grad_norm: float = knob(
        1.0, "ppo: gradient norm clip of the critic; 0 switches it off", low=0, objective=True
    )
    tasks_per_step: int = knob(8, "tasks rolled out before each update (x group_size episodes)", low=1, objective=True)
    minibatch_rows: int = knob(0, "rows per optimizer step; 0 = all rows of the rollout", low=0, objective=True)
    micro_rows: int = knob(64, "rows per forward; changes speed and memory, never the result", low=1)
    gradient_checkpointing: bool = knob(
        False, "recompute activations in the backward pass: much less memory, a third more time"
    )
    epochs: int = knob(1, "passes over the rows of one rollout", low=1, objective=True)
    optimizer_reset: str = knob(
        "auto",
        "when the optimizer's state starts from zero; auto: never in a centralized run, else per_round",
        allowed=("auto", "per_round", "never"),
        objective=True,
    )
    deepspeed: str = knob(
        "none",
        "DeepSpeed configuration of conf/deepspeed: what is partitioned over the ranks, and whether it is kept in host memory",
        allowed=("none", "zero1", "zero2", "zero3", "zero1-offload", "zero2-offload", "zero3-offload"),
    )
    ranks: int = knob(1, "processes, one GPU each, that train a client together; more than one need deepspeed", low=1)


@dataclass(frozen=True, kw_only=True, slots=True)
class LoraConfig:
    """Low-rank adapters (Hu et al. 2022): with a rank, only their values are trained and travel."""

    rank: int = knob(0, "rank r of the adapters; 0 trains every weight", low=0, high=65536, objective=True)
    alpha: float = knob(16.0, "adapters are scaled by alpha / rank", low=1e-6, high=1e6, objective=True)
    targets: str = knob(
        "all-linear",
        "modules that get an adapter: `all-linear`, or names with commas (`q_proj,v_proj`)",
        objective=True,
    )
    client_ranks: str = knob(
        "same",
        "ranks of clients 0, 1, … in turn (`8,4`), at the same alpha / rank; `same` gives each the full rank",
        objective=True,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelConfig:
    """The policy."""

    path: str = knob(
        "tiny", "`tiny` (made here), a folder, a GGUF file, or a Hugging Face id of a causal LM", objective=True
    )
    attention: str = knob(
        "sdpa",
        "attention implementation of transformers",
        allowed=("sdpa", "eager", "flash_attention_2", "flash_attention_3", "flex_attention"),
        objective=True,
    )
    compute_dtype: str = knob(
        "auto",
        "arithmetic of forwards; `auto` is bfloat16 on a GPU; trained weights stay fp32 everywhere",
        allowed=("auto", "float32", "bfloat16"),
        objective=True,
    )
    critic_path: str = knob(
        "auto",
        "ppo: trained critic to start from, a folder; `auto` is the one beside `model.path`, else a fresh one; or `fresh`",
        objective=True,
    )
    lora: LoraConfig = field(default_factory=LoraConfig)


@dataclass(frozen=True, kw_only=True, slots=True)
class RolloutConfig:
    """How the policy acts while it learns."""

    mode: str = knob("windowed", "one row per turn, or one per episode", allowed=("windowed", "concat"), objective=True)
    history: int = knob(2, "past turns shown in a windowed prompt", low=0, objective=True)
    max_turns: int = knob(15, "actions per episode", low=1, objective=True)
    max_new_tokens: int = knob(16, "tokens of one answer", low=1, objective=True)
    max_prompt_tokens: int = knob(
        192,
        "tokens of one prompt; longer ones lose their left end, "
        "and a concat conversation ends beyond this + max_turns x max_new_tokens",
        low=8,
        objective=True,
    )
    temperature: float = knob(1.0, "training sampling temperature", low=1e-3, objective=True)
    engine: str = knob("transformers", "inference engine", allowed=("transformers", "vllm"))
    schedule: str = knob(
        "lockstep",
        "all live episodes move together, or `continuous`: an environment's step holds up nobody else",
        allowed=("lockstep", "continuous"),
    )
    gpu_memory: float = knob(
        0.5, "share of the client's part of a GPU that a colocated vLLM engine takes while awake", low=0.01, high=1
    )
    eager: bool = knob(False, "vLLM without compilation and CUDA graphs: starts sooner, answers more slowly")
    server_url: str = knob(
        "none", "http://HOST:PORT of a vLLM server of this machine, instead of an engine in the worker"
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class PromptConfig:
    """How an observation becomes a prompt."""

    style: str = knob(
        "compact",
        "`paper` (the published templates) or `compact` (for tiny models)",
        allowed=("paper", "compact"),
        objective=True,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class EnvConfig:
    """What the agent acts in; a key the chosen environment does not use is refused."""

    name: str = knob(
        "webshop",
        "environment: webshop, minihouse, tinyguess, alfworld, harbor, remote, an entry point or module:Class",
        objective=True,
    )
    data_path: str = knob("none", "folder with the user's own data, where the environment takes one", objective=True)
    goals: str = knob(
        "synthetic",
        "WebShop goals of the user's own data: generated from products, or written by people",
        allowed=("synthetic", "human"),
        objective=True,
    )
    search_return_n: int = knob(50, "products a WebShop search may return", low=1, objective=True)
    val_search_return_n: int = knob(50, "the same for held-out tasks, whatever the clients' own", low=1, objective=True)
    reward: str = knob(
        "strict",
        "WebShop reward: exact option values, or WebShop's fuzzy matching of them",
        allowed=("strict", "upstream"),
        objective=True,
    )
    workers: int = knob(2, "processes an environment with a heavy engine (alfworld) plays in", low=1)
    sandbox: str = knob("bwrap", "where Harbor commands run: bubblewrap or containers", allowed=("bwrap", "docker"))
    max_commands: int = knob(15, "Harbor commands after which the verifier judges unasked", low=1, objective=True)
    command_timeout_s: float = knob(30.0, "seconds a Harbor command may take", low=0.1)
    threshold: float = knob(1.0, "verifier reward from which a Harbor task counts as solved", low=0, objective=True)
    verifier: str = knob(
        "none",
        "who scores an episode at its end: none, module:function, an entry point or the URL of a judge",
        objective=True,
    )
    verifier_weight: float = knob(
        1.0, "the verifier's part of the reward; the rest is the environment's own", low=0, high=1, objective=True
    )
    url: str = knob("none", "remote: http://HOST:PORT of a served environment; several with commas share the episodes")
    token_file: str = knob(
        "auto", "remote: file with the servers' token; `auto` finds that of a server of this machine"
    )
    digest: str = knob("any", "remote: digest that the servers must have (they print it)", objective=True)
    settings: str = knob(
        "none",
        "what an environment of your own takes besides these keys: env.settings.NAME=VALUE, or a mapping",
        objective=True,
    )
    timeout_s: float = knob(300.0, "remote: seconds one request may take, its repetitions included", low=0.1)


@dataclass(frozen=True, kw_only=True, slots=True)
class PartitionConfig:
    """Which tasks and which world each client gets."""

    strategy: str = knob("uniform", "partition of the training tasks", objective=True)
    tasks_per_client: int = knob(100, "tasks a client holds at least", low=1, objective=True)
    omega: float = knob(
        0.5, "preference: skew of a client's category mix, 0 none, 1 one category", low=0, high=1, objective=True
    )
    size_std: float = knob(
        1.0, "coverage: concentration of shard sizes, 256 nearly equal, 1 extreme", low=1e-3, objective=True
    )
    size_mean: int = knob(500, "coverage: mean shard size", low=1, objective=True)
    size_max: int = knob(1000, "coverage: largest shard size", low=1, objective=True)
    success_std: float = knob(
        1.0, "hardness: concentration of the easy share, 256 nearly equal, 1 extreme", low=1e-3, objective=True
    )
    trajectories_file: str = knob("none", "hardness: success labels of a reference policy (JSON)", objective=True)
    env_div: float = knob(
        0.7,
        "catalog_split, scene_disjoint: 0 the same world for all, 1 independent worlds",
        low=0,
        high=1,
        objective=True,
    )
    keep_ratio: float = knob(
        0.7, "catalog_split: share of the other products a client's shop keeps", low=0, high=1, objective=True
    )
    variant_n: int = knob(
        0, "bm25_*, lookalike, rank_wrapper, *_variant: worlds in use; 0 is the arm's own number", low=0, objective=True
    )
    scenes_per_client: int = knob(8, "scene_disjoint: scenes a client plays in", low=1, objective=True)
    settings: str = knob(
        "none",
        "what a strategy of your own takes besides these keys: partition.settings.NAME=VALUE, or a mapping",
        objective=True,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class EvaluationConfig:
    """Held-out success, on tasks no client trains on."""

    where: str = knob(
        "server",
        "who plays the held-out tasks: the server, one client, or every site its own",
        allowed=("server", "client", "sites", "off"),
    )
    tasks: int = knob(256, "held-out tasks", low=1)
    temperature: float = knob(0.4, "sampling temperature of the sampled score", low=1e-3)
    greedy: bool = knob(True, "also score greedy decoding")
    every: int = knob(1, "rounds between evaluations (round 0 and the last are always scored)", low=1)


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerConfig:
    """Where the heavy half of a client runs."""

    mode: str = knob(
        "auto",
        "in the ClientApp's process, or in a process that outlives its messages; `auto` is the latter under a "
        "SuperNode, on a machine with GPUs and for a python of its own",
        allowed=("auto", "inline", "process"),
    )
    python: str = knob("same", "interpreter of the worker process")
    gpus: float = knob(
        1.0, "GPUs of one client, where there are any; a fraction shares one, a whole number is a group", low=0.01
    )
    torch_threads: int = knob(1, "intra-op threads; part of what makes two runs equal bit for bit", low=1)
    idle_timeout_s: float = knob(600.0, "seconds without a request after which a worker process ends", low=1)
