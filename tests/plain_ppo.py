"""The critic's half of PPO written out: one unpadded row at a time, float64, advantages by brute force."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from plain_grpo import PlainAdamW, PlainTrainer, copied

from flwr_agent.config import AlgorithmConfig, RunConfig
from flwr_agent.rl.samples import Sample


def values(critic: torch.nn.Module, row: Sample) -> torch.Tensor:
    """The critic at the position before each response token, `[T]`."""
    ids = torch.tensor([row.prompt_ids + row.response_ids])
    return critic(input_ids=ids).logits[0, len(row.prompt_ids) - 1 : -1, 0]


class PlainPPO(PlainTrainer):
    """The policy's plain trainer with a critic beside it."""

    def __init__(
        self, model: torch.nn.Module, critic: torch.nn.Module, base: torch.nn.Module | None, config: RunConfig
    ):
        super().__init__(model, base, config)
        trainer = config.trainer
        self.critic = copied(critic)
        weights = dict(self.critic.named_parameters())
        self.critic_optimizer = PlainAdamW(
            weights, trainer.critic_lr, trainer.weight_decay, trainer.critic_max_grad_norm
        )

    def prepare(self, samples: Sequence[Sample]) -> None:
        """Values, advantages and log-probs before the first update of a rollout."""
        self.old = [values(self.critic, row).detach() for row in samples]
        self.samples, self.returns = estimate(samples, self.old, self.config.algorithm)
        self.before = [self.scores(row).detach() for row in samples]

    def losses(self, step: Sequence[int]) -> tuple[torch.Tensor, torch.Tensor]:
        """The policy's and the critic's on a list of rows."""
        rows, before, old, returns = (
            [found[i] for i in step] for found in (self.samples, self.before, self.old, self.returns)
        )
        return self.loss(rows, before), critic_loss(self.critic, rows, old, returns, self.config.algorithm)

    def train(self, samples: Sequence[Sample], steps: Sequence[Sequence[int]]) -> None:
        """One optimizer step of both on each list of rows."""
        self.prepare(samples)
        for step in steps:
            loss, value_loss = self.losses(step)
            self.optimizer.step(self.optimizer.gradient(loss))
            self.critic_optimizer.step(self.critic_optimizer.gradient(value_loss))


def chains(samples: Sequence[Sample]) -> list[list[tuple[int, int]]]:
    """(row, token) of the model's own tokens, chain by chain, in the order they were said."""
    found: list[list[tuple[int, int]]] = []
    for i, sample in enumerate(samples):
        if not sample.continues:
            found.append([])
        found[-1] += [(i, t) for t, own in enumerate(sample.mask) if own]
    return found


def estimate(samples: Sequence[Sample], old: Sequence[torch.Tensor], knobs: AlgorithmConfig):
    """Rows with advantages, and returns `[T]` by row: sums over all later tokens, nothing carried along."""
    advantages = [np.zeros(len(s.mask)) for s in samples]
    returns = [np.zeros(len(s.mask)) for s in samples]
    for chain in chains(samples):
        v = [float(old[i][t]) for i, t in chain] + [0.0]
        r = [samples[i].rewards[t] for i, t in chain]
        errors = [r[k] + knobs.gamma * v[k + 1] - v[k] for k in range(len(chain))]
        for k, (i, t) in enumerate(chain):
            advantages[i][t] = sum(
                (knobs.gamma * knobs.gae_lambda) ** (j - k) * errors[j] for j in range(k, len(chain))
            )
            returns[i][t] = advantages[i][t] + v[k]
    if knobs.whiten:
        own = np.concatenate([a[np.array(s.mask) == 1] for a, s in zip(advantages, samples, strict=True)])
        advantages = [
            (a - own.mean()) / (own.std() + 1e-6) * np.array(s.mask) for a, s in zip(advantages, samples, strict=True)
        ]
    return [replace(s, advantages=a.tolist()) for s, a in zip(samples, advantages, strict=True)], returns


def critic_loss(
    critic: torch.nn.Module,
    rows: Sequence[Sample],
    old: Sequence[torch.Tensor],
    returns: Sequence[np.ndarray],
    knobs: AlgorithmConfig,
) -> torch.Tensor:
    """Clipped squared error: mean over all tokens, or over fours of rows of their token means."""
    errors = []
    for row, old_T, target in zip(rows, old, returns, strict=True):
        own = torch.tensor(row.mask, dtype=torch.bool)
        v, o, r = values(critic, row)[own], old_T[own].detach(), torch.tensor(target)[own]
        near = torch.minimum(torch.maximum(v, o - knobs.value_clip), o + knobs.value_clip) if knobs.value_clip else v
        errors.append(torch.maximum((v - r) ** 2, (near - r) ** 2))
    if knobs.critic_loss == "global_token_mean":
        return torch.cat(errors).mean()
    return torch.stack([torch.cat(errors[at : at + 4]).mean() for at in range(0, len(errors), 4)]).mean()
