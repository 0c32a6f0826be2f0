"""Policies of a few thousand random weights, and random rows to train them on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import torch
from transformers import LlamaForCausalLM

from envs.tinyguess import INSTRUCTION, START
from flwr_agent.rl.chat import Chat
from flwr_agent.rl.samples import Sample
from flwr_agent.rl.tiny import Recipe, to_model, to_tokenizer
from flwr_agent.rl.trainer import Trainer
from flwr_agent.rl.trl_seam import Seam
from flwr_agent.rl.weights import to_arrays
from flwr_agent.seeds import rng


@cache
def chat() -> Chat:
    """A tokenizer of about 130 words that knows TinyGuess."""
    numbers = " ".join(str(n) for n in range(1, 51))
    return Chat(to_tokenizer([f"{INSTRUCTION} {START} higher lower say a number {numbers}"]))


def policy(seed: int = 0, noise: float = 0.3) -> LlamaForCausalLM:
    """A Llama of one layer; policies of different seeds differ by `noise` per weight."""
    model = to_model(len(chat().tokenizer), Recipe(hidden_size=16, num_layers=1, num_heads=1))
    with torch.no_grad():
        for name, p in sorted(model.named_parameters()):
            p += noise * torch.from_numpy(rng(seed, name).standard_normal(tuple(p.shape))).float()
    return model


def save_policy(folder: Path) -> str:
    """Write a policy to `folder` and return the value of `model.path`."""
    policy().save_pretrained(folder)
    chat().tokenizer.save_pretrained(folder)
    return str(folder)


def guessing(folder: Path) -> dict[str, object]:
    """Keys of a run of seconds: TinyGuess with an untrained policy, which is written to `folder`."""
    return {
        "model__path": save_policy(folder),
        "env__name": "tinyguess",
        "federation__epochs_per_round": 2,
        "algorithm__group_size": 3,
        "trainer__tasks_per_step": 2,
        "trainer__minibatch_rows": 8,
        "trainer__lr": 1e-3,
        "rollout__max_turns": 3,
        "rollout__max_new_tokens": 3,
        "rollout__max_prompt_tokens": 48,
        "partition__tasks_per_client": 16,
        "evaluation__tasks": 5,
    }


def random_rows(num_rows: int, seed: int = 0, *, zero: Sequence[int] = ()) -> list[Sample]:
    """Rows with tokens of others among the model's own; the rows in `zero` carry no advantage."""
    return [_row(rng("row", seed, i), is_zero=i in zero) for i in range(num_rows)]


def _row(draw: np.random.Generator, *, is_zero: bool) -> Sample:
    vocabulary, num_tokens = len(chat().tokenizer), int(draw.integers(1, 7))
    mask = [1, *draw.integers(0, 2, num_tokens - 1).tolist()]
    logprobs = draw.uniform(-6, -3, num_tokens).astype(np.float32).tolist()
    advantage = 0.0 if is_zero else float(np.float32(draw.standard_normal()))
    return Sample(
        draw.integers(4, vocabulary, int(draw.integers(1, 8))).tolist(),
        draw.integers(4, vocabulary, num_tokens).tolist(),
        mask,
        [p * m for p, m in zip(logprobs, mask, strict=True)],
        [advantage * m for m in mask],
    )


def rewarded(num_rows: int, seed: int) -> list[Sample]:
    """Random rows with a reward at every own token, about half of them going on where the last one ended."""
    draw = rng("rewarded", seed)
    return [
        replace(
            row,
            rewards=(draw.standard_normal(len(row.mask)) * row.mask).tolist(),
            continues=i > 0 and bool(draw.integers(0, 2)),
        )
        for i, row in enumerate(random_rows(num_rows, seed))
    ]


def gradients(trainer: Trainer) -> list[dict[str, torch.Tensor]]:
    """A list that grows by the gradients of every optimizer step to come, as they stand when it is taken."""
    seen: list[dict[str, torch.Tensor]] = []
    trainer.seam.optimizer.optimizer.register_step_pre_hook(
        lambda *_: seen.append({name: p.grad.clone() for name, p in trainer.model.named_parameters()})
    )
    return seen


def watched_scores(seam: Seam) -> list[torch.Tensor]:
    """A list that grows by the log-probs `[B, T]` of every forward to come, which will keep their gradient."""
    seen: list[torch.Tensor] = []
    score = seam._scores

    def watched(*args):
        logps, entropies = score(*args)
        logps.retain_grad()
        seen.append(logps)
        return logps, entropies

    seam._scores = watched
    return seen


def start(trainer: Trainer, *, prox_mu: float = 0.0) -> Trainer:
    """The trainer at the start of a round from its own weights."""
    critic = to_arrays(trainer.critic.model) if trainer.critic else None
    trainer.begin_round(to_arrays(trainer.model), critic=critic, prox_mu=prox_mu)
    return trainer


def flat(tensors: dict[str, torch.Tensor]) -> torch.Tensor:
    """All values of named tensors in a row."""
    return torch.cat([tensors[name].detach().double().flatten() for name in sorted(tensors)])


def distance(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> float:
    """Euclidean distance relative to what was expected."""
    return float((flat(found) - flat(expected)).norm() / flat(expected).norm())
