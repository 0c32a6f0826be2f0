"""One learner that lives across rounds: weights are copied in, rows trained on, weights copied out.

Nothing is rebuilt between rounds, so nothing can leak: model, optimizer and its state tensors are made once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from peft import PeftModel
from transformers import PreTrainedModel

from flwr_agent.config import RunConfig
from flwr_agent.rl.batch import chunks, minibatches, right_pad, to_batch
from flwr_agent.rl.chat import Chat
from flwr_agent.rl.lora import Unadapted
from flwr_agent.rl.losses import TokenStats
from flwr_agent.rl.samples import Sample
from flwr_agent.rl.trl_seam import Batch, Seam
from flwr_agent.rl.weights import load_weights, to_arrays


class Trainer:
    """GRPO on rows: clipped surrogate, k3 KL to the base, FedProx's proximal gradient, AdamW on fp32 masters."""

    def __init__(
        self,
        model: PreTrainedModel | PeftModel,
        base: PreTrainedModel | Unadapted | None,
        chat: Chat,
        config: RunConfig,
    ):
        self.config, self.chat, self.base = config, chat, base
        self.seam = Seam(model, chat.tokenizer, config)
        self.model = self.seam.model
        if isinstance(base, PreTrainedModel):
            self.seam.freeze(base)
        self._mu, self._anchor = 0.0, []

    def begin_round(self, arrays: Mapping[str, np.ndarray], *, prox_mu: float = 0.0) -> None:
        """Load weights in place, zero the optimizer's state in place, remember w_t for the proximal term.

        Gradients that an update which was cut short left behind are dropped.

        Raises:
            ProtocolError: if names or shapes are not the model's.
        """
        load_weights(self.model, arrays)
        self.seam.optimizer.zero_grad()
        if self.config.trainer.optimizer_reset == "per_round":
            self._reset_optimizer()
        self._mu = prox_mu
        self._anchor = [p.detach().clone() for p in self._parameters] if prox_mu else []

    def train(self, samples: Sequence[Sample], *, seed: int) -> dict[str, float]:
        """Train on the rows of one rollout; returns the means of the step's statistics.

        Optimizer steps are cut from all rows and divide by all tokens of their rows, so that leaving out the rows that
        carry no signal saves their forwards and changes nothing else.
        """
        trainer, stats = self.config.trainer, TokenStats()
        steps = [
            step
            for epoch in range(trainer.epochs)
            for step in minibatches(len(samples), trainer.minibatch_rows, seed=seed + epoch)
        ]
        kept = [self._with_signal(step, samples) for step in steps]
        used = sorted({i for rows in kept for i in rows})
        # With a single update per rollout the old log-probs are the current ones, by definition.
        old = self._old_logprobs(samples, used) if len(steps) > 1 else None
        for step, rows in zip(steps, kept, strict=True):
            self._update(samples, rows, old, num_tokens=sum(samples[i].num_tokens for i in step), stats=stats)
        return stats.means() | {
            "rows": float(len(samples)),
            "rows_dropped": float(len(samples) - len(used)),
            "tokens_trained": float(sum(samples[i].num_tokens for i in used)),
        }

    def weights(self) -> dict[str, np.ndarray]:
        """The model's trainable values as fp32 arrays (copies)."""
        return to_arrays(self.model)

    def _update(
        self,
        samples: Sequence[Sample],
        rows: Sequence[int],
        old: Mapping[int, torch.Tensor] | None,
        *,
        num_tokens: int,
        stats: TokenStats,
    ) -> None:
        """One optimizer step on `rows`, its gradient summed over chunks."""
        for chunk in chunks(rows, samples, self.config.trainer.micro_rows):
            batch = self._batch([samples[i] for i in chunk], num_tokens)
            if old is not None:
                batch["old_per_token_logps"] = right_pad([old[i] for i in chunk], 0, self._device)
            if self.base is not None:
                batch["ref_per_token_logps"] = self.seam.score(self.base, batch)
            loss = self.seam.loss(batch)
            self.seam.accelerator.backward(loss)
            stats.add(
                batch,
                *self.seam.scored,
                loss=float(loss.detach()),
                clip=self.config.algorithm.clip,
                sampler=right_pad([samples[i].logprobs for i in chunk], 0, self._device),
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
        return {"grad_norm": norm, "prox_norm": prox}

    @torch.no_grad()
    def _add_prox(self) -> float:
        """FedProx (Li et al. 2020, eq. 2): add mu (w - w_t) to every gradient, before clipping; returns its norm."""
        square = 0.0
        if self._mu:
            for p, anchor in zip(self._parameters, self._anchor, strict=True):
                if p.grad is not None:
                    term = self._mu * (p - anchor)
                    p.grad.add_(term)
                    square += float(term.double().square().sum())
        return square**0.5

    def _with_signal(self, rows: Sequence[int], samples: Sequence[Sample]) -> list[int]:
        """Rows that can move the weights: with a KL term all of them, else those whose advantage is not zero.

        One row stands in where there is none: a step of gradient zero still decays moments and weights.
        """
        if self.config.algorithm.kl_coef:
            return list(rows)
        return [i for i in rows if any(samples[i].advantages)] or list(rows[:1])

    def _old_logprobs(self, samples: Sequence[Sample], rows: Sequence[int]) -> dict[int, torch.Tensor]:
        """Trainer log-probs of `rows` before the first update, by the path that training itself uses."""
        old: dict[int, torch.Tensor] = {}
        for chunk in chunks(rows, samples, self.config.trainer.micro_rows):
            scored = self.seam.score(self.model, self._batch([samples[i] for i in chunk], 1))
            old |= {i: row[: len(samples[i].response_ids)] for i, row in zip(chunk, scored, strict=True)}
        return old

    def _batch(self, samples: Sequence[Sample], num_tokens: int) -> Batch:
        return to_batch(samples, pad_id=self.chat.pad_id, num_tokens=num_tokens, device=self._device)

    def _reset_optimizer(self) -> None:
        for state in self.seam.optimizer.state.values():
            for value in state.values():
                value.zero_()

    @property
    def _device(self) -> torch.device:
        return self.seam.accelerator.device

    @property
    def _parameters(self) -> list[torch.nn.Parameter]:
        return [p for p in self.model.parameters() if p.requires_grad]
