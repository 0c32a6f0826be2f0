"""Low-rank adapters (Hu et al. 2022) on a policy: seeded alike everywhere, trained and sent in its weights' place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import PreTrainedModel

from flwr_agent.config import RunConfig
from flwr_agent.errors import ConfigError
from flwr_agent.policy import ranks
from flwr_agent.rl.weights import trained
from flwr_agent.seeds import rng

FROZEN_A = "lora_frozen_a"
"""The strategy under which only B is trained and sent."""


def adapt(policy: PreTrainedModel, config: RunConfig) -> PeftModel:
    """The policy with its weights frozen and an fp32 adapter that changes nothing yet: A is seeded, B is zero.

    A is a function of `config.seed` and the module's name, so that A need not travel where it is frozen.

    Raises:
        ConfigError: `model.lora.targets` names no linear module of the model.
    """
    lora = config.model.lora
    targets = lora.targets if lora.targets == "all-linear" else lora.targets.split(",")
    alpha: Any = lora.alpha
    try:
        adapted = get_peft_model(policy, LoraConfig(r=lora.rank, lora_alpha=alpha, target_modules=targets))
    except ValueError as error:
        reason = str(error).partition(". ")[0]
        raise ConfigError("model.lora.targets", lora.targets, f"{reason}; use all-linear") from error
    with torch.no_grad():
        for name, p in trained(adapted).items():
            if ".lora_A." in name:
                bound = p.size(1) ** -0.5
                p.copy_(torch.from_numpy(rng(config.seed, "lora", name).uniform(-bound, bound, tuple(p.shape))))
                p.requires_grad_(config.strategy.name != FROZEN_A)
    return adapted


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
