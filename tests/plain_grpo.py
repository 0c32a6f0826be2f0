"""GRPO written out: one unpadded row at a time, float64, AdamW by hand; what the trainer is compared with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from flwr_agent.config import RunConfig
from flwr_agent.rl.samples import Sample


def logprobs(model: torch.nn.Module, row: Sample, temperature: float) -> torch.Tensor:
    """Log-probability of each response token, `[T]`."""
    ids = torch.tensor([row.prompt_ids + row.response_ids])
    scores = model(input_ids=ids).logits[0, len(row.prompt_ids) - 1 : -1] / temperature
    chosen = scores[torch.arange(len(row.response_ids)), torch.tensor(row.response_ids)]
    return chosen - scores.exp().sum(-1).log()


@dataclass
class PlainTrainer:
    model: torch.nn.Module
    base: torch.nn.Module | None
    config: RunConfig
    mu: float = 0.0
    num_steps: int = 0
    ratios: list[float] = field(default_factory=list)
    grad_norms: list[float] = field(default_factory=list)
    prox_norms: list[float] = field(default_factory=list)

    def __post_init__(self):
        self.model = _copied(self.model)
        self.base = _copied(self.base) if self.base is not None else None
        self.weights = dict(self.model.named_parameters())
        self.anchor = {name: w.detach().clone() for name, w in self.weights.items()}
        self.moments = {name: (torch.zeros_like(w), torch.zeros_like(w)) for name, w in self.weights.items()}

    def loss(self, rows: Sequence[Sample], old: Sequence[torch.Tensor]) -> torch.Tensor:
        """Mean over all own tokens of -min(r A, clip(r) A) + beta k3."""
        total, num_tokens = torch.zeros((), dtype=torch.float64), 0
        for row, old_T in zip(rows, old, strict=True):
            own = torch.tensor(row.mask, dtype=torch.bool)
            p, a = self.scores(row)[own], torch.tensor(row.advantages, dtype=torch.float64)[own]
            ratio, clip = torch.exp(p - old_T[own]), self.config.algorithm.clip
            total = total - (a * torch.where(a > 0, ratio.clamp(max=1 + clip), ratio.clamp(min=1 - clip))).sum()
            if self.base is not None:
                ref = logprobs(self.base, row, self.config.rollout.temperature)[own].detach()
                total = total + self.config.algorithm.kl_coef * (torch.exp(ref - p) - (ref - p) - 1).sum()
            num_tokens += int(own.sum())
            self.ratios += ratio.tolist()
        return total / num_tokens

    def gradient(self, rows: Sequence[Sample], old: Sequence[torch.Tensor]) -> dict[str, torch.Tensor]:
        names = list(self.weights)
        found = torch.autograd.grad(self.loss(rows, old), [self.weights[name] for name in names])
        return dict(zip(names, found, strict=True))

    def scores(self, row: Sample) -> torch.Tensor:
        return logprobs(self.model, row, self.config.rollout.temperature)

    def train(self, samples: Sequence[Sample], steps: Sequence[Sequence[int]]) -> None:
        """One optimizer step on each list of rows; no row is left out."""
        old = [self.scores(row).detach() for row in samples]
        for step in steps:
            self._step(self.gradient([samples[i] for i in step], [old[i] for i in step]))

    @torch.no_grad()
    def _step(self, gradient: dict[str, torch.Tensor]) -> None:
        """FedProx's term first, then the clip over all tensors, then AdamW (Loshchilov and Hutter 2019, alg. 2).

        The clip divides by norm + 1e-6, as torch documents it.
        """
        trainer = self.config.trainer
        prox = {name: self.mu * (w - self.anchor[name]) for name, w in self.weights.items()}
        self.grad_norms.append(_norm(gradient))
        self.prox_norms.append(_norm(prox))
        gradient = {name: g + prox[name] for name, g in gradient.items()}
        scale = min(1.0, trainer.max_grad_norm / (_norm(gradient) + 1e-6)) if trainer.max_grad_norm else 1.0
        self.num_steps += 1
        for name, w in self.weights.items():
            g, (m, v) = scale * gradient[name], self.moments[name]
            m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
            self.moments[name] = (m, v)
            if "norm" not in name:
                w.mul_(1 - trainer.lr * trainer.weight_decay)
            first, second = m / (1 - 0.9**self.num_steps), v / (1 - 0.999**self.num_steps)
            w.sub_(trainer.lr * first / (second.sqrt() + 1e-8))


def _copied(model: torch.nn.Module) -> torch.nn.Module:
    """The library's own forward on the same weights, without what a trainer hung on the original."""
    copied = type(model)(model.config).double()
    copied.load_state_dict(model.state_dict())
    return copied


def _norm(tensors: dict[str, torch.Tensor]) -> float:
    return float(torch.sqrt(sum((t**2).sum() for t in tensors.values())))
