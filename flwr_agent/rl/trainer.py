"""One learner that lives across rounds: weights are copied in, rows trained on, weights copied out.

Nothing is rebuilt between rounds, so nothing can leak: model, optimizer and its state tensors are made once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from peft import PeftModel
from transformers import PreTrainedModel

from flwr_agent.config import RunConfig
from flwr_agent.rl import critic as value_model
from flwr_agent.rl.batch import Batch, chunks, is_own, minibatches, right_pad, to_batch
from flwr_agent.rl.chat import Chat
from flwr_agent.rl.gae import estimate
from flwr_agent.rl.lora import Unadapted
from flwr_agent.rl.losses import Stats, critic_weights, policy_measures
from flwr_agent.rl.optimize import Optimization
from flwr_agent.rl.samples import Sample
from flwr_agent.rl.stats import advantage_mass
from flwr_agent.rl.trl_seam import Seam
from flwr_agent.rl.weights import copy_into, load_weights, to_arrays

Known = dict[str, Mapping[int, torch.Tensor]]
"""Name in a batch -> row -> values `[T]` that no update of the rollout changes."""


class Trainer:
    """The clipped surrogate on rows, with group-normalised advantages (GRPO) or a critic's beside it (PPO).

    k3 KL to the base or to the round's start, entropy, FedProx's proximal gradient, AdamW on fp32 masters.
    """

    def __init__(
        self,
        model: PreTrainedModel | PeftModel,
        base: PreTrainedModel | Unadapted | None,
        chat: Chat,
        config: RunConfig,
    ):
        self.config, self.chat, self.base = config, chat, base
        values = value_model.build(model) if config.algorithm.name == "ppo" else None
        self.seam = Seam(model, chat.tokenizer, config)
        self.model = self.seam.model
        accelerator = self.seam.accelerator
        self.critic = value_model.Critic(values, config, accelerator) if values is not None else None
        self.actor = Optimization(
            self.model,
            self.seam.optimizer,
            max_grad_norm=config.trainer.max_grad_norm,
            differentiate=accelerator.backward,
        )
        if isinstance(base, PreTrainedModel):
            self.seam.freeze(base)

    def begin_round(
        self,
        arrays: Mapping[str, np.ndarray],
        *,
        critic: Mapping[str, np.ndarray] | None = None,
        prox_mu: float = 0.0,
    ) -> None:
        """Load weights in place, zero the optimizers' state in place, remember w_t for the proximal term and the KL.

        Args:
            arrays: the policy's weights.
            critic: the critic's, which PPO needs.
            prox_mu: FedProx's coefficient, of the policy alone.

        Raises:
            ProtocolError: if names or shapes are not the model's.
        """
        load_weights(self.model, arrays)
        reset = self.config.trainer.optimizer_reset == "per_round"
        if isinstance(self.base, PreTrainedModel) and self.config.algorithm.kl_anchor == "round":
            copy_into(dict(self.base.named_parameters()), arrays)
        if self.critic:
            load_weights(self.critic.model, critic or {})
            self.critic.optimization.begin(reset=reset)
        self.actor.begin(prox_mu=prox_mu, reset=reset)

    def train(self, samples: Sequence[Sample], *, seed: int) -> dict[str, float]:
        """Train on the rows of one rollout; returns the means of the step's statistics.

        Optimizer steps are cut from all rows and divide by all tokens of their rows, so that leaving out the rows that
        carry no signal saves their forwards and changes nothing else.
        """
        trainer, stats, known = self.config.trainer, Stats(), Known()
        if self.critic:
            samples, known = self._estimated(samples, self.critic)
        steps = [
            step
            for epoch in range(trainer.epochs)
            for step in minibatches(len(samples), trainer.minibatch_rows, seed=seed + epoch)
        ]
        kept = [self._with_signal(step, samples) for step in steps]
        used = sorted({i for rows in kept for i in rows})
        if len(steps) > 1:  # with a single update the old log-probs are the current ones, by definition
            known["old_per_token_logps"] = self._each(samples, used, lambda b: self.seam.score(self.model, b))
        for step, rows in zip(steps, kept, strict=True):
            self._update(samples, step, rows, known, stats)
        measured = stats.policy() | (stats.critic() if self.critic else {})
        return (
            measured
            | advantage_mass(samples, self.config.rollout.max_turns)
            | {
                "rows": float(len(samples)),
                "rows_dropped": float(len(samples) - len(used)),
                "tokens_trained": float(sum(samples[i].num_tokens for i in used)),
            }
        )

    def weights(self) -> dict[str, np.ndarray]:
        """The policy's trainable values as fp32 arrays (copies)."""
        return to_arrays(self.model)

    def _update(
        self, samples: Sequence[Sample], step: Sequence[int], rows: Sequence[int], known: Known, stats: Stats
    ) -> None:
        """One optimizer step on the rows of `step`, its gradient summed over chunks of those that carry signal."""
        counts = [samples[i].num_tokens for i in step]
        weight = dict(zip(step, critic_weights(counts, self.config.algorithm.critic_loss), strict=True))
        losses = {"loss": 0.0, "critic/loss": 0.0}
        for chunk in chunks(rows, samples, self.config.trainer.micro_rows):
            batch = self._batch([samples[i] for i in chunk], sum(counts))
            for name, by_row in known.items():
                batch[name] = right_pad([by_row[i] for i in chunk], 0, self._device)
            stats.add_padding(batch)
            losses["loss"] += self._policy_backward(batch, stats)
            if self.critic:
                batch["critic_weight"] = torch.tensor(
                    [[weight[i]] for i in chunk], dtype=torch.float64, device=self._device
                )
                loss, measures = self.critic.loss(batch)
                self.critic.optimization.backward(loss)
                stats.add(is_own(batch), measures)
                losses["critic/loss"] += float(loss.detach())
        stats.add_step(losses | self.actor.step())
        if self.critic:
            stats.add_step({f"critic/{name}": value for name, value in self.critic.optimization.step().items()})

    def _policy_backward(self, batch: Batch, stats: Stats) -> float:
        if self.base is not None:
            batch["ref_per_token_logps"] = self.seam.score(self.base, batch)
        loss, algorithm = self.seam.loss(batch), self.config.algorithm
        self.actor.backward(loss)
        measures = policy_measures(batch, *self.seam.scored, clip=algorithm.clip, cap=algorithm.importance_cap)
        stats.add(is_own(batch), measures)
        return float(loss.detach())

    def _estimated(self, samples: Sequence[Sample], critic: value_model.Critic) -> tuple[list[Sample], Known]:
        """Rows with the critic's advantages, its values before the first update, and the returns that it learns."""
        old = self._each(samples, range(len(samples)), critic.values)
        values = [old[i].double().cpu().numpy() for i in range(len(samples))]
        estimated, returns = estimate(samples, values, self.config.algorithm)
        targets = {i: torch.as_tensor(row, dtype=old[i].dtype) for i, row in enumerate(returns)}
        return estimated, {"old_values": old, "returns": targets}

    def _with_signal(self, rows: Sequence[int], samples: Sequence[Sample]) -> list[int]:
        """Rows that can move the weights: those whose advantage is not zero, or all if another term needs them.

        One row stands in where there is none: a step of gradient zero still decays moments and weights.
        """
        algorithm = self.config.algorithm
        if self.critic or algorithm.kl_coef or algorithm.entropy_coef:
            return list(rows)
        return [i for i in rows if any(samples[i].advantages)] or list(rows[:1])

    def _each(
        self, samples: Sequence[Sample], rows: Sequence[int], score: Callable[[Batch], torch.Tensor]
    ) -> dict[int, torch.Tensor]:
        """What `score` says of the tokens of `rows` before the first update, by the path that training itself uses."""
        found: dict[int, torch.Tensor] = {}
        for chunk in chunks(rows, samples, self.config.trainer.micro_rows):
            scored = score(self._batch([samples[i] for i in chunk], 1))
            found |= {i: row[: len(samples[i].response_ids)] for i, row in zip(chunk, scored, strict=True)}
        return found

    def _batch(self, samples: Sequence[Sample], num_tokens: int) -> Batch:
        return to_batch(samples, pad_id=self.chat.pad_id, num_tokens=num_tokens, device=self._device)

    @property
    def _device(self) -> torch.device:
        return self.seam.accelerator.device
