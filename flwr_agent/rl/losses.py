"""What a training step measures, token-weighted, beside the loss that TRL computes."""

from __future__ import annotations

from collections import defaultdict

import torch

from flwr_agent.rl.trl_seam import Batch, is_own


def k3(reference: torch.Tensor, policy: torch.Tensor) -> torch.Tensor:
    """Per-token estimate of KL(policy || reference): exp(d) - d - 1 with d = reference - policy (Schulman 2020)."""
    delta = reference - policy
    return torch.expm1(delta) - delta


class TokenStats:
    """Sums over the model's tokens of a step, turned into means at its end."""

    def __init__(self) -> None:
        self._sums: dict[str, float] = defaultdict(float)
        self._tokens = 0.0
        self._steps: dict[str, list[float]] = defaultdict(list)

    @torch.no_grad()
    def add(
        self,
        batch: Batch,
        logps_BT: torch.Tensor,
        entropy_BT: torch.Tensor,
        *,
        loss: float,
        clip: float,
        sampler: torch.Tensor,
    ) -> None:
        """Take in one forward: policy log-probs and entropies `[B, T]`, the sampler's log-probs `[B, T]`."""
        own = is_own(batch)
        old = batch.get("old_per_token_logps", logps_BT)
        ratio = (logps_BT - old).exp()
        self._tokens += float(own.sum())
        self._sums["loss"] += loss
        tokens = {
            "entropy": entropy_BT,
            "clip_fraction": ((ratio - 1).abs() > clip).float(),
            "sampler_gap": (sampler - old).abs(),
        }
        if "ref_per_token_logps" in batch:
            tokens["kl_base"] = k3(batch["ref_per_token_logps"], logps_BT)
        for name, value in tokens.items():
            self._sums[name] += float(value[own].sum())

    def add_step(self, **values: float) -> None:
        """Take in what one optimizer step measured."""
        for name, value in values.items():
            self._steps[name].append(value)

    def means(self) -> dict[str, float]:
        """Token means, step means, and the number of optimizer steps; the same names whatever happened."""
        num_updates = len(self._steps["grad_norm"])
        names = ("entropy", "clip_fraction", "sampler_gap", "kl_base")
        out = {name: self._sums[name] / max(self._tokens, 1.0) for name in names}
        out |= {name: sum(self._steps[name]) / max(num_updates, 1) for name in ("grad_norm", "prox_norm")}
        return out | {"loss": self._sums["loss"] / max(num_updates, 1), "updates": float(num_updates)}
