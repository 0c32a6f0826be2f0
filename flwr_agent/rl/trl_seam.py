"""The one module that touches TRL's private methods: model preparation, per-token scores and the policy loss.

TRL's own loop wants one row per prompt; a windowed episode yields a variable number of rows. So rollouts, rows and the
round loop are ours, and of `GRPOTrainer` we take `_prepare_for_training` (once) and `_compute_loss`. The version is
bounded in pyproject.toml and `tests/rl/test_trl_seam.py` fails if these seams drift.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from datasets import Dataset
from peft import PeftModel
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.integrations.deepspeed import is_deepspeed_zero3_enabled
from trl import GRPOConfig, GRPOTrainer
from trl.trainer.utils import add_fused_lm_head

from flwr_agent.config import RunConfig
from flwr_agent.rl.batch import Batch, is_own, positions
from flwr_agent.rl.losses import importance
from flwr_agent.rl.model import compute_dtype
from flwr_agent.rl.optimize import Optimization

if TYPE_CHECKING:
    from flwr_agent.rl.zero import ZeroOptimization

_PER_TOKEN = ("advantages", "sampler_per_token_logps", "old_per_token_logps", "ref_per_token_logps")
NOTHING = (torch.empty(0), torch.empty(0))


class Seam(GRPOTrainer):
    """`GRPOTrainer` reduced to what we use; never calls `train()`."""

    # transformers declares them optional; they are there once `_prepare_for_training` has run.
    model: torch.nn.Module
    model_wrapped: Any
    optimizer: torch.optim.Optimizer

    def __init__(self, model: PreTrainedModel | PeftModel, tokenizer: PreTrainedTokenizerBase, config: RunConfig):
        self._scratch = tempfile.TemporaryDirectory(prefix="flwr-agent-trl-")
        arguments = _arguments(config, self._scratch.name, use_cpu=not torch.cuda.is_available())
        # Of several visible GPUs a process trains on the first; transformers would spread its forwards over all.
        arguments._n_gpu = min(arguments.n_gpu, 1)
        super().__init__(
            model=model,
            reward_funcs=[_env_reward],
            args=arguments,
            train_dataset=Dataset.from_dict({"prompt": ["."]}),
            processing_class=tokenizer,
        )
        self._is_cast = compute_dtype(config) is torch.bfloat16
        self._max_grad_norm = config.trainer.max_grad_norm
        self.beta = config.algorithm.kl_coef
        self.objective = config.algorithm
        self.current_gradient_accumulation_steps = 1
        self._prepare_for_training(1, None, None)
        self.scoring_s = 0.0
        """Seconds spent in `score` so far."""
        self._scored = NOTHING
        self._batch: Batch = {}

    def optimization(self) -> Optimization | ZeroOptimization:
        """The gradient steps of the policy, on one device or behind a DeepSpeed engine."""
        if self.is_deepspeed_enabled:
            from flwr_agent.rl.zero import ZeroOptimization

            return ZeroOptimization(self.model_wrapped, max_grad_norm=self._max_grad_norm)
        backward = self.accelerator.backward
        return Optimization(self.model, self.optimizer, max_grad_norm=self._max_grad_norm, differentiate=backward)

    def freeze(self, base: PreTrainedModel) -> None:
        """Make `base` the fixed reference of the KL term, scored by the same path as the policy."""
        base.requires_grad_(requires_grad=False).eval()
        if is_deepspeed_zero3_enabled():
            from deepspeed.runtime.zero.partition_parameters import ZeroParamStatus

            # TRL asks any LM head whether it has to be gathered; the base is whole on every rank.
            head: Any = base.get_output_embeddings()
            head.weight.ds_status = ZeroParamStatus.AVAILABLE
        add_fused_lm_head(base, temperature=self.temperature, outputs=("log_probs", "entropy"))

    def loss(self, batch: Batch) -> torch.Tensor:
        """Clipped surrogate, KL and entropy, summed over the model's tokens and divided by `num_items_in_batch` (scalar).

        What stands at other tokens is replaced by 0: a mask that is multiplied in afterwards lets inf x 0 through.
        """
        own = is_own(batch)
        self._batch = batch | {name: batch[name].masked_fill(~own, 0) for name in _PER_TOKEN if name in batch}
        self.model_wrapped.train()
        with self.compute_loss_context_manager():
            value = self._compute_loss(self.model_wrapped, self._batch)
        self._metrics["train"].clear()
        logps, entropies = self._scored
        self._scored, self._batch = (logps.detach(), entropies.detach()), {}
        if self.objective.entropy_coef:  # TRL's own bonus is a mean over each forward, so it depends on the split
            bonus = entropies.masked_fill(~own, 0).sum() / batch["num_items_in_batch"].clamp(min=1.0)
            value = value - self.objective.entropy_coef * self.accelerator.num_processes * bonus
        return value

    def take_scores(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Log-probs and entropies `[B, T]` of the last `loss`, once: nothing of a batch outlives its update."""
        scored, self._scored = self._scored, NOTHING
        return scored

    @torch.no_grad()
    def score(self, model: Callable[..., Any], batch: Batch) -> torch.Tensor:
        """Log-probabilities `[B, T]` of the completion under `model` (at the training temperature)."""
        start = time.perf_counter()
        ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], 1)
        mask = torch.cat([batch["prompt_mask"], batch["completion_mask"]], 1)
        scored = self._scores(model, ids, mask, batch["completion_ids"].size(1))[0]
        if scored.is_cuda:
            torch.cuda.synchronize()
        self.scoring_s += time.perf_counter() - start
        return scored

    def _get_per_token_logps_and_entropies(self, model, input_ids, attention_mask, logits_to_keep, **_):
        self._scored = self._scores(model, input_ids, attention_mask, logits_to_keep)
        logps = self._scored[0].masked_fill(~is_own(self._batch), 0)
        if self.objective.importance_cap:  # a weight on the advantage is one on the policy term alone
            old = self._batch.get("old_per_token_logps", logps.detach())
            weight = importance(old, self._batch["sampler_per_token_logps"], self.objective.importance_cap)
            self._batch["advantages"] = self._batch["advantages"] * weight
        return logps, self._scored[1], None

    def _scores(self, model, ids_BT, mask_BT, keep: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Log-probs and entropies `[B, keep]`; positions are counted from the first real token, as in generation."""
        inputs = {"input_ids": ids_BT, "attention_mask": mask_BT, "position_ids": positions(mask_BT)}
        with torch.autocast(ids_BT.device.type, torch.bfloat16, enabled=self._is_cast):
            if ids_BT.device.type == "cuda":
                labels = ids_BT.masked_fill(mask_BT == 0, -100)
                labels[:, :-keep] = -100
                out = model(**inputs, labels=labels, fused_lm_head=True)
                return out.log_probs[:, -keep:], out.entropy[:, -keep:]
            # Without Triton the fused head scores every position; here only the answer's logits are made.
            logits = model(**inputs, use_cache=False, logits_to_keep=keep + 1).logits[:, :-1]
        wide = torch.promote_types(logits.dtype, torch.float32)
        logps_BTV = (logits.to(wide) / self.temperature).log_softmax(-1)
        with torch.set_grad_enabled(torch.is_grad_enabled() and bool(self.objective.entropy_coef)):
            entropy = -(logps_BTV.exp() * logps_BTV).sum(-1)
        return logps_BTV.gather(-1, ids_BT[:, -keep:, None])[..., 0], entropy


def _env_reward(**_: object) -> list[float | None]:
    """Stands where TRL wants a reward function; returns come from the environment, so it is never called."""
    raise AssertionError("rewards come from the environment")


def _arguments(config: RunConfig, folder: str, *, use_cpu: bool) -> GRPOConfig:
    trainer, algorithm = config.trainer, config.algorithm
    return GRPOConfig(
        output_dir=folder,
        use_cpu=use_cpu,
        bf16=compute_dtype(config) is torch.bfloat16 and trainer.deepspeed == "none",
        report_to="none",
        disable_tqdm=True,
        log_level="error",
        gradient_checkpointing=trainer.gradient_checkpointing,
        pad_to_multiple_of=None,
        disable_dropout=True,
        seed=0,
        data_seed=0,
        num_generations=2,
        per_device_train_batch_size=2,
        gradient_accumulation_steps=1,
        steps_per_generation=1,
        max_steps=1,
        learning_rate=trainer.lr,
        weight_decay=trainer.weight_decay,
        max_grad_norm=0.0,
        lr_scheduler_type="constant",
        temperature=config.rollout.temperature,
        loss_type="dapo",
        scale_rewards="none",
        beta=0.0,
        epsilon=algorithm.clip,
        delta=algorithm.dual_clip or None,
        use_bias_correction_kl=False,
        max_completion_length=config.rollout.max_new_tokens,
        deepspeed=_deepspeed(config),
    )


def _deepspeed(config: RunConfig) -> dict[str, Any] | None:
    """What `trainer.deepspeed` names; read through the module that prepares DeepSpeed for this machine."""
    if config.trainer.deepspeed == "none":
        return None
    from flwr_agent.rl.zero import settings

    return settings(config)
