"""One learner that lives across rounds: weights are copied in, rows trained on, weights copied out.

Nothing is rebuilt between rounds, so nothing can leak: model, optimizer and its state tensors are made once.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Self, cast

import numpy as np
import torch
from peft import PeftModel
from transformers import PreTrainedModel

from flwr_agent.config import RunConfig
from flwr_agent.rl import critic as value_model
from flwr_agent.rl.batch import Batch, by_length, chunks, is_own, minibatches, right_pad, to_batch
from flwr_agent.rl.chat import Chat
from flwr_agent.rl.gae import estimate
from flwr_agent.rl.lora import Unadapted
from flwr_agent.rl.losses import Stats, critic_weights, policy_measures
from flwr_agent.rl.model import identity, load_base, load_policy, load_tokenizer
from flwr_agent.rl.ranks import FILLER, Ranks, to_facts
from flwr_agent.rl.samples import Sample
from flwr_agent.rl.stats import advantage_mass
from flwr_agent.rl.trl_seam import Seam
from flwr_agent.rl.weights import to_numpy, whole

Known = dict[str, Mapping[int, torch.Tensor]]
"""Name in a batch -> row -> values `[T]` that no update of the rollout changes."""
_NOTHING = torch.zeros(1)
"""What is known of a filler."""


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
        self.base_digest = ""
        # Partitioned weights answer nothing on one rank alone; transformers plays with a copy then.
        is_split = config.trainer.deepspeed.startswith("zero3") and config.rollout.engine == "transformers"
        self.acting = copy.deepcopy(model) if is_split else model
        values = value_model.build(cast("PreTrainedModel", model)) if config.algorithm.name == "ppo" else None
        self.seam = Seam(model, chat.tokenizer, config)
        self.model = self.seam.model
        self.ranks = Ranks()
        self.critic = value_model.Critic(values, config, self.seam.accelerator) if values is not None else None
        self.actor = self.seam.optimization()
        if isinstance(base, PreTrainedModel):
            self.seam.freeze(base)

    @classmethod
    def load(cls, config: RunConfig) -> Self:
        """The trainer of a run, its models read from their files.

        Raises:
            ConfigError: no such model.
        """
        policy = load_policy(config)
        base = load_base(policy, config) if config.algorithm.kl_coef else None
        digest = identity(policy)
        trainer = cls(policy, base, Chat(load_tokenizer(config)), config)
        trainer.base_digest = digest
        return trainer

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
        self.ranks.tell("begin_round", prox_mu=prox_mu)
        self.actor.load(arrays)
        reset = self.config.trainer.optimizer_reset == "per_round"
        if isinstance(self.base, PreTrainedModel) and self.config.algorithm.kl_anchor == "round":
            own = dict(self.base.named_parameters())
            for name, value in self.actor.values():
                own[name].data.copy_(value)
        if self.critic:
            self.critic.optimization.load(critic or {})
            self.critic.optimization.begin(reset=reset)
        self.actor.begin(prox_mu=prox_mu, reset=reset)

    def train(self, samples: Sequence[Sample], *, seed: int) -> dict[str, float]:
        """Train on the rows of one rollout; returns the means of the step's statistics.

        Optimizer steps are cut from all rows and divide by all tokens of their rows, so that leaving out the rows that
        carry no signal saves their forwards and changes nothing else.
        """
        self.ranks.tell("train", samples=to_facts(samples), seed=seed)
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
            known["old_per_token_logps"] = self._each(
                samples, used, lambda b: self.seam.score(self.seam.model_wrapped, b)
            )
        for step, rows in zip(steps, kept, strict=True):
            self._update(samples, step, rows, known, stats)
        stats.merge(self.ranks)
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
        return to_numpy(self.values())

    def values(self, of: str = "actor") -> Iterator[tuple[str, torch.Tensor]]:
        """The trained values of the policy, or of the `critic`, by name; each rank gathers them along."""
        self.ranks.tell("values", of=of)
        yield from (self.critic.optimization if of == "critic" and self.critic else self.actor).values()

    def whole(self) -> Iterator[tuple[str, torch.Tensor]]:
        """The policy as an inference engine takes it (see `weights.whole`)."""
        return self.values() if self.config.trainer.deepspeed.startswith("zero3") else whole(self.actor.model)

    def take(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Load the policy's weights in place, to play with them.

        Raises:
            ProtocolError: if names or shapes are not the model's.
        """
        self.ranks.tell("take")
        self.actor.load(arrays)

    def _update(
        self, samples: Sequence[Sample], step: Sequence[int], rows: Sequence[int], known: Known, stats: Stats
    ) -> None:
        """One optimizer step on the rows of `step`, its gradient summed over chunks of those that carry signal."""
        counts = [samples[i].num_tokens for i in step]
        weight = dict(zip(step, critic_weights(counts, self.config.algorithm.critic_loss), strict=True))
        losses, parts = {"loss": 0.0, "critic/loss": 0.0}, self._chunks(rows, samples)
        for number, chunk in enumerate(parts):
            is_last = number == len(parts) - 1
            batch = self._batch(samples, chunk, sum(counts))
            for name, by_row in known.items():
                batch[name] = right_pad([by_row.get(i, _NOTHING) for i in chunk], 0, self._device)
            stats.add_padding(batch)
            losses["loss"] += self._policy_backward(batch, stats, is_last=is_last)
            if self.critic:
                by_row = [[weight.get(i, 0.0)] for i in chunk]
                batch["critic_weight"] = torch.tensor(by_row, dtype=torch.float64, device=self._device)
                loss, measures = self.critic.loss(batch)
                self.critic.optimization.backward(loss, is_last=is_last)
                stats.add(is_own(batch), measures)
                losses["critic/loss"] += float(loss.detach())
        stats.add_losses({name: value / self.ranks.count for name, value in losses.items()})
        stats.add_step(self.actor.step())
        if self.critic:
            stats.add_step({f"critic/{name}": value for name, value in self.critic.optimization.step().items()})

    def _policy_backward(self, batch: Batch, stats: Stats, *, is_last: bool) -> float:
        if self.base is not None:
            batch["ref_per_token_logps"] = self.seam.score(self.base, batch)
        loss, algorithm = self.seam.loss(batch), self.config.algorithm
        self.actor.backward(loss, is_last=is_last)
        measures = policy_measures(batch, *self.seam.take_scores(), clip=algorithm.clip, cap=algorithm.importance_cap)
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
        for chunk in self._chunks(rows, samples):
            scored = score(self._batch(samples, chunk, 1))
            found |= {i: row[: _length(samples, i)] for i, row in zip(chunk, scored, strict=True)}
        return self.ranks.merged(found, {i: len(samples[i].response_ids) for i in rows})

    def _chunks(self, rows: Sequence[int], samples: Sequence[Sample]) -> list[list[int]]:
        """This rank's forwards of `rows`, as many as every rank's, rows of like length together."""
        return chunks(self.ranks.share(by_length(rows, samples)), self.config.trainer.micro_rows)

    def _batch(self, samples: Sequence[Sample], rows: Sequence[int], num_tokens: int) -> Batch:
        filler = Sample([self.chat.pad_id], [self.chat.pad_id], [0], [0.0], [0.0])
        chosen = [filler if i == FILLER else samples[i] for i in rows]
        return to_batch(chosen, pad_id=self.chat.pad_id, num_tokens=num_tokens, device=self._device)

    @property
    def _device(self) -> torch.device:
        return self.seam.accelerator.device


def _length(samples: Sequence[Sample], row: int) -> int:
    return 0 if row == FILLER else len(samples[row].response_ids)
