"""Terms of the objective per token, and what a training step measures beside them.

Axes: `B` rows, `T` tokens of the completion.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch

from flwr_agent.rl.batch import Batch

if TYPE_CHECKING:
    from flwr_agent.rl.ranks import Ranks

EPSILON = 1e-8
"""Variance below which returns are all alike."""
VIRTUAL_ROWS = 4
"""Rows of one virtual micro-batch of the `legacy_exact` critic loss."""


def k3(reference: torch.Tensor, policy: torch.Tensor) -> torch.Tensor:
    """Per-token estimate of KL(policy || reference): exp(d) - d - 1 with d = reference - policy (Schulman 2020)."""
    delta = reference - policy
    return torch.expm1(delta) - delta


def importance(trainer: torch.Tensor, sampler: torch.Tensor, cap: float) -> torch.Tensor:
    """Truncated importance weights of tokens that another distribution sampled (Ionides 2008; Yao et al. 2025).

    Args:
        trainer: the trainer's log-probs before the first update.
        sampler: the sampler's log-probs.
        cap: the largest weight.
    """
    return (trainer - sampler).exp().clamp(max=cap)


def value_error(values: torch.Tensor, old: torch.Tensor, returns: torch.Tensor, clip: float) -> torch.Tensor:
    """Squared error per token, no smaller than that of a value kept within `clip` of the old one; 0 does not clip."""
    error = (values - returns).square()
    if not clip:
        return error
    return torch.maximum(error, (old + (values - old).clamp(-clip, clip) - returns).square())


def critic_weights(num_tokens: Sequence[int], mode: str) -> list[float]:
    """Weight of each row's token errors in the critic's loss of one optimizer step, given its rows in order.

    `global_token_mean`: the mean over all tokens. `legacy_exact`: the mean over virtual micro-batches of four consecutive
    rows of each one's token mean. Either way the loss is a sum over rows, which no split into forwards changes.
    """
    size = VIRTUAL_ROWS if mode == "legacy_exact" else max(len(num_tokens), 1)
    parts = [num_tokens[at : at + size] for at in range(0, len(num_tokens), size)]
    return [1 / (len(parts) * max(sum(part), 1)) for part in parts for _ in part]


def policy_measures(
    batch: Batch, logps_BT: torch.Tensor, entropy_BT: torch.Tensor, *, clip: float, cap: float
) -> dict[str, torch.Tensor]:
    """What one forward of the policy shows, per token: its log-probs against the old ones, the sampler's and the anchor's."""
    old = batch.get("old_per_token_logps", logps_BT)
    sampler = batch["sampler_per_token_logps"]
    weight = (old - sampler).exp()
    return {
        "entropy": entropy_BT,
        "clip_fraction": (((logps_BT - old).exp() - 1).abs() > clip).float(),
        "kl": k3(batch.get("ref_per_token_logps", logps_BT), logps_BT),
        "sampler_gap": (sampler - old).abs(),
        "sampler_kl": k3(old, sampler),
        "importance": weight,
        "importance_square": weight.square(),
        "importance_truncated": (weight > (cap or math.inf)).float(),
    }


def critic_measures(batch: Batch, values_BT: torch.Tensor, clip: float) -> dict[str, torch.Tensor]:
    """What one forward of the critic shows, per token: its errors against the returns, before and after this step's moves."""
    old, returns = batch["old_values"], batch["returns"]
    return {
        "critic/value": values_BT,
        "critic/return": returns,
        "critic/return_square": returns.square(),
        "critic/error_square": (returns - old).square(),
        "critic/clip_fraction": ((values_BT - old).abs() > (clip or math.inf)).float(),
    }


class Stats:
    """Means over the model's tokens and over optimizer steps."""

    def __init__(self) -> None:
        self._tokens: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
        self._steps: dict[str, list[float]] = defaultdict(list)
        self._losses: dict[str, list[float]] = defaultdict(list)
        self._padding = 0.0

    def add_padding(self, batch: Batch) -> None:
        """Count positions of a forward that hold no token of its rows."""
        self._padding += sum(float((batch[name] == 0).sum()) for name in ("prompt_mask", "completion_mask"))

    @torch.no_grad()
    def add(self, own: torch.Tensor, values: Mapping[str, torch.Tensor]) -> None:
        """Take in values `[B, T]` at the tokens where `own` is true."""
        for name, value in values.items():
            total = self._tokens[name]
            total[0] += float(value[own].sum())
            total[1] += float(own.sum())

    def add_step(self, values: Mapping[str, float]) -> None:
        """Take in what one optimizer step measured."""
        for name, value in values.items():
            self._steps[name].append(value)

    def add_losses(self, values: Mapping[str, float]) -> None:
        """Take in this rank's part of the losses of one optimizer step."""
        for name, value in values.items():
            self._losses[name].append(value)

    def merge(self, ranks: Ranks) -> None:
        """Take in what the other ranks measured."""
        sums = [total for name in sorted(self._tokens) for total in self._tokens[name]]
        losses = [value for name in sorted(self._losses) for value in self._losses[name]]
        self._padding, *rest = ranks.total([self._padding, *sums, *losses])
        merged = iter(rest)
        for name in sorted(self._tokens):
            self._tokens[name] = [next(merged), next(merged)]
        for name in sorted(self._losses):
            self._steps[name] = [next(merged) for _ in self._losses[name]]

    def policy(self) -> dict[str, float]:
        """The policy's means and the number of optimizer steps; the same names whatever happened.

        `importance_ess` is the effective sample size as a share of the tokens, (sum w)^2 / (n sum w^2), before truncation.
        """
        tokens = ("entropy", "clip_fraction", "kl", "sampler_gap", "sampler_kl", "importance_truncated")
        square = self._mean("importance_square")
        return {
            **{name: self._mean(name) for name in tokens},
            **{name: self._step_mean(name) for name in ("loss", "grad_norm", "prox_norm", "grad_norm_applied")},
            "importance_ess": self._mean("importance") ** 2 / square if square else 0.0,
            "updates": float(len(self._steps["loss"])),
            "padding_tokens": self._padding,
        }

    def critic(self) -> dict[str, float]:
        """The critic's means; `critic/explained_variance` is 1 - (mean squared error / variance of the returns)."""
        tokens = ("critic/value", "critic/return", "critic/clip_fraction")
        variance = self._mean("critic/return_square") - self._mean("critic/return") ** 2
        error = self._mean("critic/error_square")
        return {
            **{name: self._mean(name) for name in tokens},
            **{name: self._step_mean(name) for name in ("critic/loss", "critic/grad_norm", "critic/grad_norm_applied")},
            "critic/explained_variance": 1 - error / variance if variance > EPSILON else 0.0,
        }

    def _mean(self, name: str) -> float:
        total, count = self._tokens[name]
        return total / max(count, 1.0)

    def _step_mean(self, name: str) -> float:
        return sum(self._steps[name]) / max(len(self._steps[name]), 1)
