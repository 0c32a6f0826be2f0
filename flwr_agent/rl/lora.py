"""Low-rank adapters (Hu et al. 2022) on a policy: seeded alike everywhere, trained and sent in its weights' place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from flwr_agent.config import RunConfig
from flwr_agent.errors import ConfigError
from flwr_agent.policy import ranks
from flwr_agent.rl.weights import trained
from flwr_agent.seeds import rng

ALL_LINEAR = "all-linear"
FROZEN_A = "lora_frozen_a"
"""The strategy under which only B is trained and sent."""


def adapt(policy: PreTrainedModel, config: RunConfig) -> PeftModel:
    """The policy with its weights frozen and an fp32 adapter that changes nothing yet: A is seeded, B is zero.

    A is a function of `config.seed` and the module's name, so that A need not travel where it is frozen.

    Raises:
        ConfigError: `model.lora.targets` names what is no linear module of the model or shares its weights, or
            `model.lora.rank` is no low rank in any of its matrices.
    """
    lora = config.model.lora
    modules = _adapted(policy, lora.targets)
    if lora.rank > (largest := max(min(module.weight.shape) for module in modules.values())):
        fix = (
            f"the adapted matrices of {config.model.path} have at most {largest} rows or columns; use {largest} or less"
        )
        raise ConfigError("model.lora.rank", lora.rank, fix)
    alpha: Any = lora.alpha
    adapted = get_peft_model(policy, LoraConfig(r=lora.rank, lora_alpha=alpha, target_modules=list(modules)))
    with torch.no_grad():
        for name, p in trained(adapted).items():
            if ".lora_A." in name:
                bound = p.size(1) ** -0.5
                p.copy_(torch.from_numpy(rng(config.seed, "lora", name).uniform(-bound, bound, tuple(p.shape))))
                p.requires_grad_(config.strategy.name != FROZEN_A)
    return adapted


def _adapted(policy: PreTrainedModel, targets: str) -> dict[str, Any]:
    """The modules that get an adapter, by their names in the model."""
    linear = {name: m for name, m in policy.named_modules() if isinstance(m, torch.nn.Linear | Conv1D)}
    if targets == ALL_LINEAR:
        return {name: module for name, module in linear.items() if module is not policy.get_output_embeddings()}
    uses = Counter(id(p) for _, p in policy.named_parameters(remove_duplicate=False))
    found: dict[str, Any] = {}
    for word in map(str.strip, targets.split(",")):
        own = {name: module for name, module in linear.items() if f".{name}".endswith(f".{word}")}
        if not own or not word:
            raise ConfigError(
                "model.lora.targets", targets, f"{word!r} is no linear module of the model; use {ALL_LINEAR}"
            )
        if any(uses[id(module.weight)] > 1 for module in own.values()):
            fix = f"{word!r} shares its weights with another module, which an adapter would not reach; leave it out"
            raise ConfigError("model.lora.targets", targets, fix)
        found |= own
    return found


class Unadapted:
    """The original model inside an adapted one, as the fixed base of a KL term: no second copy of its weights."""

    def __init__(self, adapted: PeftModel):
        self._adapted = adapted

    def __call__(self, **inputs: Any) -> Any:
        """Its forward, adapters off."""
        with self._adapted.disable_adapter():
            return self._adapted(**inputs)


def cut(arrays: Mapping[str, np.ndarray], rank: int) -> dict[str, np.ndarray]:
    """An adapter of a lower rank at the same alpha / r: its first `rank` components, the others zero.

    Zero components stay zero under any gradient step (each factor's gradient is a product with the other), so a client
    of rank r trains exactly the rank-r adapter, and what it sends is padded already.

    Example:
        >>> cut({"x.lora_A.weight": np.ones((2, 1))}, 1)["x.lora_A.weight"].tolist()
        [[1.0], [0.0]]
    """
    new = {name: values.copy() for name, values in arrays.items()}
    for name, values in new.items():
        if ".lora_A." in name:
            values[rank:] = 0
        elif ".lora_B." in name:
            values[:, rank:] = 0
    return new


def client_rank(config: RunConfig, client_id: int) -> int:
    """Rank at which a client trains."""
    found = ranks(config)
    return found[client_id % len(found)]
