"""From a cell to the configuration keys it sets, at the published scale or small enough for a minute on a CPU."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from envs.base import Task
from flwr_agent.config import KEYS, type_of
from flwr_agent.matrix.cells import BACKBONES, ENV, Cell
from flwr_agent.seeds import rng

SCALES = ("paper", "small")
LABELS = "trajectories_file"
SEEDS = {"main_seed1": 21, "main_seed2": 84}
"""Setting -> `seed`, where it is not 42."""
LOCAL_CLIENTS = {"local_client1": 21, "local_client2": 42, "local_client3": 84}
"""Setting -> the client that trains on its own."""
COMMON: dict[str, Any] = {
    "prompt.style": "paper",
    "strategy.name": "fedavg",
    "algorithm.kl_coef": 0.01,
    "algorithm.kl_anchor": "base",
    "algorithm.entropy_coef": 0.001,
    "algorithm.clip": 0.2,
    "algorithm.dual_clip": 3.0,
    "algorithm.reward_scale": 10.0,
    "algorithm.invalid_penalty": 0.1,
    "trainer.lr": 1e-6,
    "trainer.weight_decay": 0.01,
    "trainer.max_grad_norm": 1.0,
    "trainer.minibatch_rows": 64,
    "trainer.micro_rows": 4,
    "rollout.mode": "windowed",
    "rollout.history": 2,
    "rollout.max_new_tokens": 512,
    "rollout.temperature": 1.0,
    "evaluation.tasks": 64,
    "evaluation.temperature": 0.4,
}
"""What every cell of the published matrix shares."""
BY_ENV: dict[str, dict[str, Any]] = {
    "webshop": {
        "env.name": "webshop",
        "env.reward": "upstream",
        "rollout.max_turns": 15,
        "rollout.max_prompt_tokens": 4096,
    },
    "alfworld": {"env.name": "alfworld", "rollout.max_turns": 50, "rollout.max_prompt_tokens": 2048},
}
BY_ALGORITHM: dict[str, dict[str, Any]] = {
    "grpo": {"algorithm.name": "grpo", "algorithm.group_size": 8, "trainer.tasks_per_step": 8},
    "ppo": {
        "algorithm.name": "ppo",
        "algorithm.group_size": 1,
        "algorithm.credit": "per_row",
        "algorithm.value_clip": 0.5,
        "algorithm.critic_loss": "legacy_exact",
        "trainer.tasks_per_step": 64,
        "trainer.critic_lr": 1e-5,
        "trainer.critic_max_grad_norm": 1.0,
    },
}
DEEP_SEARCH = 200
"""`env.search_return_n` where worlds differ, so that filtered results still fill a page."""
SMALL: dict[str, Any] = {
    "model.path": "tiny",
    "prompt.style": "compact",
    "federation.rounds": 1,
    "federation.epochs_per_round": 1,
    "trainer.tasks_per_step": 4,
    "trainer.minibatch_rows": 0,
    "trainer.micro_rows": 64,
    "trainer.lr": 4e-4,
    "rollout.max_turns": 8,
    "rollout.max_prompt_tokens": 192,
    "rollout.max_new_tokens": 16,
    "evaluation.tasks": 16,
}
"""Laid over a cell by `small`: the same clients, arms and code, with the tiny policy and one short round."""


def to_flat(cell: Cell, scale: str = "paper") -> dict[str, Any]:
    """Dotted key -> value of everything a cell sets."""
    shape, arm = cell.shape, cell.arm
    flat = {
        "seed": SEEDS.get(cell.setting, 42),
        "model.path": BACKBONES[cell.backbone],
        **COMMON,
        **BY_ENV[cell.env],
        **BY_ALGORITHM[cell.algorithm],
        **_mode(cell.setting),
        "federation.total_clients": shape.total_clients,
        "federation.clients_per_round": shape.clients_per_round,
        "federation.rounds": shape.rounds,
        "federation.epochs_per_round": shape.epochs_per_round,
        "partition.strategy": arm.strategy,
        "partition.tasks_per_client": shape.tasks_per_client,
    }
    if cell.env == "webshop" and arm.family == ENV:
        flat["env.search_return_n"] = DEEP_SEARCH
    for key, text in zip(arm.knobs.values(), cell.values, strict=True):
        if key:
            flat[f"partition.{key}"] = type_of(KEYS[f"partition.{key}"])(float(text))
    return flat | (_small(cell) if scale == "small" else {})


def _mode(setting: str) -> dict[str, Any]:
    if setting in LOCAL_CLIENTS:
        return {"federation.mode": "local", "federation.local_client": LOCAL_CLIENTS[setting]}
    return {"federation.mode": "centralized"} if setting == "centralized" else {}


def _small(cell: Cell) -> dict[str, Any]:
    own: dict[str, Any] = {"env.name": "minihouse"} if cell.env == "alfworld" else {}
    many = {"algorithm.group_size": 4} if cell.algorithm == "grpo" else {"trainer.tasks_per_step": 16}
    return SMALL | own | many


def write_drawn_labels(path: Path, tasks: list[Task]) -> None:
    """Success labels drawn at random, so that a small `hardness` cell has some without a policy playing every task."""
    easy = rng("drawn labels", len(tasks)).random(len(tasks)) < 0.5
    entries = [
        {"task_info": {"task_id": task.id}, "traj_info": {"success": bool(is_easy)}}
        for task, is_easy in zip(tasks, easy, strict=True)
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    facts = {"source": "drawn at random for a small run"}
    path.write_text(json.dumps({"metadata": facts, "trajectories": entries}), encoding="utf-8")
