"""The value model beside a policy: the policy's own backbone under a head of one label per token."""

from __future__ import annotations

import copy
import logging
from pathlib import Path

import torch
from accelerate import Accelerator
from safetensors.torch import load_file
from transformers import AutoModelForTokenClassification, PreTrainedConfig, PreTrainedModel

from flwr_agent import critics
from flwr_agent.arrays import CRITIC
from flwr_agent.config import RunConfig
from flwr_agent.errors import ConfigError
from flwr_agent.rl.batch import Batch, is_own, positions
from flwr_agent.rl.losses import critic_measures, value_error
from flwr_agent.rl.model import load_config
from flwr_agent.rl.optimize import Optimization

logger = logging.getLogger("flwr.agent")
NO_DECAY = ("norm", "bias")
"""Parameters without weight decay, as the policy's optimizer leaves them out."""


def build(policy: PreTrainedModel) -> PreTrainedModel:
    """A critic that starts as the policy's backbone, in fp32, under a head of zeros: every value is 0.

    Raises:
        ConfigError: transformers has no token classifier of this architecture.
    """
    with torch.random.fork_rng(devices=[]):  # the head's random start is replaced, the caller's generator untouched
        critic = _of(policy.config)
    critic.base_model.load_state_dict(policy.base_model.state_dict())
    for module in critic.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    with torch.no_grad():
        for name, p in critic.named_parameters():
            if not name.startswith(critic.base_model_prefix + "."):
                p.zero_()
    torch.nn.Module.to(critic, policy.device)
    return critic


def start(config: RunConfig) -> str | None:
    """Folder of the trained critic that a run starts from (see `critics.find`), or None, which is announced loudly.

    Only headers are read: a critic that does not fit is refused before any model is loaded.

    Raises:
        ConfigError: it is of another architecture than the policy, or transformers has no critic of that.
        DataError: a file of it is damaged.
    """
    with torch.device("meta"):
        expected = {name: list(p.shape) for name, p in _of(load_config(config)).named_parameters()}
    if (path := critics.find(config).path) is None:
        logger.warning(
            "THE CRITIC STARTS FRESH (%s=%s, model.path=%s): every value is 0 until it has learnt; name the critic that "
            "was trained with this policy, if there is one",
            critics.KEY,
            config.model.critic_path,
            config.model.path,
        )
        return None
    found = {name: shape for name, (_, shape) in critics.shapes(Path(path)).items()}
    if strange := sorted(n for n in expected.keys() | found.keys() if expected.get(n) != found.get(n)):
        fix = f"{len(strange)} tensors differ from a critic of this policy, first {strange[0]!r}"
        raise ConfigError(critics.KEY, path, fix + "; give one made from the same architecture")
    return path


def initial(policy: PreTrainedModel, path: str | None) -> PreTrainedModel:
    """The critic of round 0: the trained one in `path`, which `start` found, or a fresh one."""
    critic = build(policy)
    if path is not None:
        for file in sorted({file for file, _ in critics.shapes(Path(path)).values()}):
            _copy(file, dict(critic.named_parameters()))
    return critic


def _of(config: PreTrainedConfig) -> PreTrainedModel:
    """A token classifier of one label on this architecture, untrained."""
    config = copy.deepcopy(config)
    config.num_labels = 1
    try:
        return AutoModelForTokenClassification.from_config(config, dtype=torch.float32)
    except ValueError as error:
        fix = f"transformers has no token classifier of type {config.model_type} for a critic; use algorithm.name=grpo"
        raise ConfigError("algorithm.name", "ppo", fix) from error


@torch.no_grad()
def _copy(file: Path, own: dict[str, torch.nn.Parameter]) -> None:
    for name, values in load_file(file).items():
        if (bare := name.removeprefix(CRITIC)) in own:
            own[bare].copy_(values)


class Critic:
    """Values, loss and optimizer of a value model; its gradient is clipped by itself and has no proximal term."""

    def __init__(self, model: PreTrainedModel, config: RunConfig, accelerator: Accelerator):
        self.model, self.value_clip = model, config.algorithm.value_clip
        self._accelerator = accelerator
        if model.device.type == "cuda":
            model.gradient_checkpointing_enable()
        optimizer, limit = _optimizer(model, config), config.trainer.critic_max_grad_norm
        self._scorer: torch.nn.Module = model
        if config.trainer.deepspeed == "none":
            self.optimization = Optimization(model, optimizer, max_grad_norm=limit)
        else:
            from flwr_agent.rl.zero import wrap

            self.optimization = wrap(model, optimizer, config, max_grad_norm=limit)
            self._scorer = self.optimization.engine

    @torch.no_grad()
    def values(self, batch: Batch) -> torch.Tensor:
        """The value `[B, T]` before each token of the completion is said."""
        return self._forward(batch)

    def loss(self, batch: Batch) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """Clipped squared error of the model's tokens, each weighed by its row's `critic_weight`; and measures per token.

        Summed over the forwards of an optimizer step, the scalar is the step's loss however its rows are split.
        """
        values = self._forward(batch)
        error = value_error(values, batch["old_values"], batch["returns"], self.value_clip)
        loss = (batch["critic_weight"].to(error.dtype) * error.masked_fill(~is_own(batch), 0)).sum()
        return loss * self._accelerator.num_processes, critic_measures(batch, values.detach(), self.value_clip)

    def _forward(self, batch: Batch) -> torch.Tensor:
        ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], 1)
        mask = torch.cat([batch["prompt_mask"], batch["completion_mask"]], 1)
        with self._accelerator.autocast():
            out = self._scorer(input_ids=ids, attention_mask=mask, position_ids=positions(mask), use_cache=False)
        values = out.logits[:, -batch["completion_ids"].size(1) - 1 : -1, 0]
        return values.to(torch.promote_types(values.dtype, torch.float32))


def _optimizer(model: PreTrainedModel, config: RunConfig) -> torch.optim.AdamW:
    decayed, free = [], []
    for name, p in model.named_parameters():
        (free if any(part in name for part in NO_DECAY) else decayed).append(p)
    groups = [
        {"params": decayed, "weight_decay": config.trainer.weight_decay},
        {"params": free, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=config.trainer.critic_lr, eps=1e-8)
