"""One learner that lives across rounds: weights are copied in, rows trained on, weights copied out.

Nothing is rebuilt between rounds, so nothing can leak: model, optimizer and its state tensors are made once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from transformers import PreTrainedModel

from flwr_agent.config import RunConfig
from flwr_agent.errors import ProtocolError
from flwr_agent.rl.batch import chunks, minibatches, to_batch
from flwr_agent.rl.chat import Chat
from flwr_agent.rl.losses import TokenStats
from flwr_agent.rl.samples import Sample
from flwr_agent.rl.trl_seam import Batch, Seam


class Trainer:
    """GRPO on rows: clipped surrogate, k3 KL to the base, FedProx's proximal gradient, AdamW on fp32 masters."""

    def __init__(self, model: PreTrainedModel, base: PreTrainedModel | None, chat: Chat, config: RunConfig):
        self.config, self.chat, self.base = config, chat, base
        self.seam = Seam(model, chat.tokenizer, config)
        self.model = self.seam.model
        if base is not None:
            self._teach_scoring(base)
        self._anchor: list[torch.Tensor] = []
        self.num_updates = 0

    def begin_round(self, arrays: Mapping[str, np.ndarray], *, prox_mu: float = 0.0) -> None:
        """Load weights in place, zero the optimizer's state in place, remember w_t for the proximal term.

        Raises:
            ProtocolError: if names or shapes are not the model's.
        """
        load_weights(self.model, arrays)
        if self.config.trainer.optimizer_reset == "per_round":
            self._reset_optimizer()
        self._mu = prox_mu
        self._anchor = [p.detach().clone() for p in self._parameters] if prox_mu else []

    def train(self, samples: Sequence[Sample], *, seed: int) -> dict[str, float]:
        """Train on the rows of one rollout; returns the means of the step's statistics."""
        stats = TokenStats()
        kept = self._with_signal(samples)
        total = sum(s.num_tokens for s in samples)
        old = self._old_logprobs(kept) if self._needs_old(len(kept)) else None
        for epoch in range(self.config.trainer.epochs):
            for indices in minibatches(len(kept), self.config.trainer.minibatch_rows, seed=seed + epoch):
                share = sum(kept[i].num_tokens for i in indices) / max(1, sum(s.num_tokens for s in kept))
                self._update(kept, indices, old, num_tokens=max(1, round(total * share)), stats=stats)
        return stats.means() | {
            "rows": float(len(samples)),
            "rows_dropped": float(len(samples) - len(kept)),
            "tokens_trained": float(total),
        }

    def weights(self) -> dict[str, np.ndarray]:
        """The model's trainable values as fp32 arrays (copies)."""
        return to_arrays(self.model)

    def _update(self, kept, indices, old, *, num_tokens: int, stats: TokenStats) -> None:
        if not indices:
            return
        for chunk in chunks(indices, kept, self.config.trainer.micro_rows):
            batch = self._batch([kept[i] for i in chunk], num_tokens)
            if old is not None:
                batch["old_per_token_logps"] = pad_rows([old[i] for i in chunk], like=batch["completion_ids"])
            if self.base is not None:
                batch["ref_per_token_logps"] = self.seam.score(self.base, batch)
            loss = self.seam.loss(batch)
            self.seam.accelerator.backward(loss)
            stats.add(
                batch,
                *self.seam.scored,
                loss=float(loss.detach()),
                clip=self.config.algorithm.clip,
                sampler=pad_rows([torch.tensor(kept[i].logprobs) for i in chunk], like=batch["completion_ids"]),
            )
        stats.add_step(**self._optimizer_step())

    def _optimizer_step(self) -> dict[str, float]:
        grads = [p.grad for p in self._parameters if p.grad is not None]
        norm = float(torch.nn.utils.get_total_norm(grads))
        prox = self._add_prox()
        clip = self.config.trainer.max_grad_norm
        if clip:
            torch.nn.utils.clip_grad_norm_(self._parameters, clip)
        self.seam.optimizer.step()
        self.seam.optimizer.zero_grad()
        self.num_updates += 1
        return {"grad_norm": norm, "prox_norm": prox}

    @torch.no_grad()
    def _add_prox(self) -> float:
        """FedProx (Li et al. 2020, eq. 2): add mu (w - w_t) to every gradient, before clipping; returns its norm."""
        square = 0.0
        for p, anchor in zip(self._parameters, self._anchor, strict=False):
            if p.grad is not None:
                term = self._mu * (p - anchor)
                p.grad.add_(term)
                square += float(term.double().square().sum())
        return square**0.5

    def _with_signal(self, samples: Sequence[Sample]) -> list[Sample]:
        """Rows that can move the weights: with a KL term all of them, else those whose advantage is not zero."""
        if self.config.algorithm.kl_coef:
            return list(samples)
        return [s for s in samples if any(s.advantages)]

    def _needs_old(self, num_rows: int) -> bool:
        """With a single update per rollout the old log-probs are the current ones, by definition."""
        size = self.config.trainer.minibatch_rows
        return self.config.trainer.epochs > 1 or 0 < size < num_rows

    def _old_logprobs(self, samples: Sequence[Sample]) -> list[torch.Tensor]:
        """Trainer log-probs of all rows before the first update, by the path that training itself uses."""
        rows: list[torch.Tensor] = [torch.empty(0)] * len(samples)
        for chunk in chunks(range(len(samples)), samples, self.config.trainer.micro_rows):
            scored = self.seam.score(self.model, self._batch([samples[i] for i in chunk], 1))
            for i, row in zip(chunk, scored, strict=True):
                rows[i] = row[: len(samples[i].response_ids)]
        return rows

    def _batch(self, samples: Sequence[Sample], num_tokens: int) -> Batch:
        return to_batch(samples, pad_id=self.chat.pad_id, num_tokens=num_tokens, device=self.seam.accelerator.device)

    def _reset_optimizer(self) -> None:
        for state in self.seam.optimizer.state.values():
            for value in state.values():
                value.zero_()

    def _teach_scoring(self, base: PreTrainedModel) -> None:
        """Give the frozen base the same scoring head, so that both are measured by one path."""
        from trl.trainer.utils import add_fused_lm_head

        base.requires_grad_(requires_grad=False).eval()
        add_fused_lm_head(base, temperature=self.seam.temperature, outputs=("log_probs", "entropy"))

    @property
    def _parameters(self) -> list[torch.nn.Parameter]:
        return [p for p in self.model.parameters() if p.requires_grad]


def pad_rows(rows: Sequence[torch.Tensor], *, like: torch.Tensor) -> torch.Tensor:
    """Stack float rows `[T_i]` to the shape `[B, T]` of `like`, zeros at the right."""
    out = torch.zeros(like.shape, dtype=torch.float32, device=like.device)
    for i, row in enumerate(rows):
        out[i, : row.numel()] = row
    return out


def to_arrays(model: torch.nn.Module) -> dict[str, np.ndarray]:
    """Trainable parameters by name, fp32; tied ones once."""
    return {name: p.detach().float().cpu().numpy().copy() for name, p in model.named_parameters()}


@torch.no_grad()
def load_weights(model: torch.nn.Module, arrays: Mapping[str, np.ndarray]) -> None:
    """Copy values into a model in place.

    Raises:
        ProtocolError: if names or shapes are not the model's.
    """
    own = dict(model.named_parameters())
    if own.keys() != arrays.keys():
        strange = sorted(own.keys() ^ arrays.keys())
        raise ProtocolError(
            f"weights do not fit the model: {len(strange)} names differ, first {strange[0]!r}; is model.path the same everywhere?"
        )
    for name, p in own.items():
        if tuple(p.shape) != arrays[name].shape:
            raise ProtocolError(
                f"weights do not fit the model: {name} is {arrays[name].shape}, expected {tuple(p.shape)}"
            )
        p.copy_(torch.from_numpy(np.ascontiguousarray(arrays[name])))
