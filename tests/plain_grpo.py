"""The policy's loss written out: one unpadded row at a time, float64, AdamW by hand; what the trainer is compared with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from flwr_agent.config import RunConfig
from flwr_agent.rl.samples import Sample


def distribution(model: torch.nn.Module, row: Sample, temperature: float) -> torch.Tensor:
    """Log-probabilities of all words at each response token, `[T, V]`."""
    ids = torch.tensor([row.prompt_ids + row.response_ids])
    scores = model(input_ids=ids).logits[0, len(row.prompt_ids) - 1 : -1] / temperature
    return scores - scores.exp().sum(-1, keepdim=True).log()


def logprobs(model: torch.nn.Module, row: Sample, temperature: float) -> torch.Tensor:
    """Log-probability of each response token, `[T]`."""
    return chosen(distribution(model, row, temperature), row)


def chosen(words: torch.Tensor, row: Sample) -> torch.Tensor:
    """What `[T, V]` says of the response's own tokens, `[T]`."""
    return words[torch.arange(len(row.response_ids)), torch.tensor(row.response_ids)]


@dataclass
class PlainAdamW:
    """FedProx's term, the clip over all tensors, AdamW (Loshchilov and Hutter 2019, alg. 2)."""

    weights: dict[str, torch.Tensor]
    lr: float
    weight_decay: float
    max_norm: float
    mu: float = 0.0
    num_steps: int = 0
    grad_norms: list[float] = field(default_factory=list)
    prox_norms: list[float] = field(default_factory=list)

    def __post_init__(self):
        self.anchor = {name: w.detach().clone() for name, w in self.weights.items()}
        self.moments = {name: (torch.zeros_like(w), torch.zeros_like(w)) for name, w in self.weights.items()}

    def gradient(self, loss: torch.Tensor) -> dict[str, torch.Tensor]:
        return dict(zip(self.weights, torch.autograd.grad(loss, list(self.weights.values())), strict=True))

    @torch.no_grad()
    def step(self, gradient: dict[str, torch.Tensor]) -> None:
        """The clip divides by norm + 1e-6, as torch documents it."""
        prox = {name: self.mu * (w - self.anchor[name]) for name, w in self.weights.items()}
        self.grad_norms.append(_norm(gradient))
        self.prox_norms.append(_norm(prox))
        gradient = {name: g + prox[name] for name, g in gradient.items()}
        scale = min(1.0, self.max_norm / (_norm(gradient) + 1e-6)) if self.max_norm else 1.0
        self.num_steps += 1
        for name, w in self.weights.items():
            g, (m, v) = scale * gradient[name], self.moments[name]
            m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
            self.moments[name] = (m, v)
            if "norm" not in name and "bias" not in name:
                w.mul_(1 - self.lr * self.weight_decay)
            first, second = m / (1 - 0.9**self.num_steps), v / (1 - 0.999**self.num_steps)
            w.sub_(self.lr * first / (second.sqrt() + 1e-8))


@dataclass
class PlainTrainer:
    model: torch.nn.Module
    base: torch.nn.Module | None
    config: RunConfig
    mu: float = 0.0
    ratios: list[float] = field(default_factory=list)

    def __post_init__(self):
        self.model = copied(self.model)
        self.base = copied(self.base) if self.base is not None else None
        self.weights = dict(self.model.named_parameters())
        trainer = self.config.trainer
        self.optimizer = PlainAdamW(self.weights, trainer.lr, trainer.weight_decay, trainer.max_grad_norm, self.mu)

    def loss(self, rows: Sequence[Sample], old: Sequence[torch.Tensor]) -> torch.Tensor:
        """Mean over all own tokens of -w min(r A, clip(r) A), dually clipped, + beta k3 - entropy."""
        total, num_tokens, knobs = torch.zeros((), dtype=torch.float64), 0, self.config.algorithm
        for row, old_T in zip(rows, old, strict=True):
            own = torch.tensor(row.mask, dtype=torch.bool)
            words = distribution(self.model, row, self.config.rollout.temperature)
            p, words = chosen(words, row)[own], words[own]
            a, sampler = (torch.tensor(v, dtype=torch.float64)[own] for v in (row.advantages, row.logprobs))
            ratio, clip = torch.exp(p - old_T[own]), knobs.clip
            up, down = ratio.clamp(max=1 + clip), ratio.clamp(1 - clip, knobs.dual_clip or None)
            weight = torch.exp(old_T[own] - sampler).clamp(max=knobs.importance_cap) if knobs.importance_cap else 1.0
            total = total - (weight * a * torch.where(a > 0, up, down)).sum()
            total = total + knobs.entropy_coef * (words.exp() * words).sum()
            if self.base is not None:
                ref = logprobs(self.base, row, self.config.rollout.temperature)[own].detach()
                total = total + knobs.kl_coef * (torch.exp(ref - p) - (ref - p) - 1).sum()
            num_tokens += int(own.sum())
            self.ratios += ratio.tolist()
        return total / num_tokens

    def gradient(self, rows: Sequence[Sample], old: Sequence[torch.Tensor]) -> dict[str, torch.Tensor]:
        return self.optimizer.gradient(self.loss(rows, old))

    def scores(self, row: Sample) -> torch.Tensor:
        return logprobs(self.model, row, self.config.rollout.temperature)

    def train(self, samples: Sequence[Sample], steps: Sequence[Sequence[int]]) -> None:
        """One optimizer step on each list of rows; no row is left out."""
        old = [self.scores(row).detach() for row in samples]
        for step in steps:
            self.optimizer.step(self.gradient([samples[i] for i in step], [old[i] for i in step]))


def copied(model: torch.nn.Module) -> torch.nn.Module:
    """The library's own forward on the same weights, without what a trainer hung on the original."""
    twin = type(model)(model.config).double()
    twin.load_state_dict(model.state_dict())
    return twin.eval()


def _norm(tensors: dict[str, torch.Tensor]) -> float:
    return float(torch.sqrt(sum((t**2).sum() for t in tensors.values())))
