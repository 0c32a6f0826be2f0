"""DeepSpeed's ZeRO behind the calls of `Optimization`: weights, gradients and optimizer state lie in partitions.

DeepSpeed reduces gradients and steps; proximal term and clip are ours, on each rank's full-precision partition in
between, so that they mean the same on any number of ranks and under any stage.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import deepspeed
import numpy as np
import torch
import torch.distributed as dist
from deepspeed.utils import (
    safe_get_full_fp32_param,
    safe_get_local_fp32_param,
    safe_get_local_grad,
    safe_set_full_fp32_param,
    safe_set_local_fp32_param,
    safe_set_local_grad,
)

from flwr_agent.config import RunConfig
from flwr_agent.paths import CONF
from flwr_agent.rl.model import compute_dtype
from flwr_agent.rl.weights import check_fit, trained

# Without it DeepSpeed compiles a C++ extension when the first group starts on CPUs, which takes minutes; gloo does.
deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False


Partitioned = Any
"""A parameter with what DeepSpeed hangs on it."""


class ZeroOptimization:
    """`Optimization` on a DeepSpeed engine whose own clipping is off."""

    def __init__(self, engine: Any, *, max_grad_norm: float):
        self.engine, self.max_grad_norm = engine, max_grad_norm
        self._mu = 0.0
        self._anchor: list[torch.Tensor] = []

    @property
    def model(self) -> torch.nn.Module:
        """The model inside the engine."""
        return self.engine.module

    def load(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Set master and compute weights from rank 0's arrays, one parameter at a time; other ranks need none.

        Raises:
            ProtocolError: if names or shapes are not the model's.
        """
        own = trained(self.model)
        if dist.get_rank() == 0:
            check_fit({name: _shape(p) for name, p in own.items()}, arrays)
        for name, p in own.items():
            _put(p, arrays.get(name))

    @torch.no_grad()
    def values(self) -> Iterator[tuple[str, torch.Tensor]]:
        """The trained values by name, full and fp32, gathered one at a time; every rank has to go through all of them."""
        for name, p in trained(self.model).items():
            full: Any = safe_get_full_fp32_param(p)
            yield name, full.reshape(_shape(p))

    @torch.no_grad()
    def begin(self, *, prox_mu: float = 0.0, reset: bool = True) -> None:
        """Start a round from the weights as they are, which the proximal term remembers as w_t, each rank its part."""
        self.engine.optimizer.zero_grad()
        if reset:
            for state in self.engine.optimizer.optimizer.state.values():
                for value in state.values():
                    value.zero_()
        self._mu = prox_mu
        self._anchor = [_weight(p).clone() for p in self._owned()] if prox_mu else []

    def backward(self, loss: torch.Tensor, *, is_last: bool) -> None:
        """Add the gradient of `loss`; after the last one of a step the ranks' sums lie in their partitions."""
        self.engine.set_gradient_accumulation_boundary(is_last)
        self.engine.backward(loss, scale_wrt_gas=False)

    @torch.no_grad()
    def step(self) -> dict[str, float]:
        """Take one optimizer step; returns the norms of what was summed, of the proximal term and of what was applied."""
        owned = list(self._owned())
        grads = [_grad(p) for p in owned]
        norm = self._norm(grads)
        prox = self._add_prox(owned, grads)
        total = self._norm(grads) if prox else norm
        if self.max_grad_norm:
            scale = min(1.0, self.max_grad_norm / (total + 1e-6))
            for grad in grads:
                grad.mul_(scale)
        for p, grad in zip(owned, grads, strict=True):
            _set_grad(p, grad)
        self.engine.step()
        return {"grad_norm": norm, "prox_norm": prox, "grad_norm_applied": min(total, self.max_grad_norm or total)}

    def _add_prox(self, owned: list[Partitioned], grads: list[torch.Tensor]) -> float:
        """FedProx (Li et al. 2020, eq. 2) on the fp32 partitions, before clipping; returns the term's global norm."""
        if not self._mu:
            return 0.0
        terms = [self._mu * (_weight(p) - anchor) for p, anchor in zip(owned, self._anchor, strict=True)]
        for grad, term in zip(grads, terms, strict=True):
            grad.add_(term.view_as(grad))
        return self._norm(terms)

    def _norm(self, parts: list[torch.Tensor]) -> float:
        square = torch.zeros(1, dtype=torch.float64, device=self.engine.device)
        for part in parts:
            square += part.double().square().sum().to(square.device)
        dist.all_reduce(square)
        return float(square.sqrt())

    def _owned(self) -> Iterator[Partitioned]:
        """Trained parameters of which a part lies here."""
        for p in self.engine.module.parameters():
            if p.requires_grad and (hasattr(p, "ds_id") or p._hp_mapping is not None):
                yield p


def wrap(
    model: torch.nn.Module, optimizer: torch.optim.Optimizer, config: RunConfig, *, max_grad_norm: float
) -> ZeroOptimization:
    """A second model beside the policy under the same stage, with an engine of its own."""
    own = settings(config) | {"train_micro_batch_size_per_gpu": 1}
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=own)
    return ZeroOptimization(engine, max_grad_norm=max_grad_norm)


def settings(config: RunConfig) -> dict[str, Any]:
    """What `trainer.deepspeed` names. Weights and gradients are fp32 and forwards are cast, as without DeepSpeed."""
    file = CONF / "deepspeed" / f"{config.trainer.deepspeed}.json"
    is_cast = compute_dtype(config) is torch.bfloat16
    cast = {"enabled": is_cast, "dtype": "bfloat16", "lower_precision_safe_modules": []}
    return json.loads(file.read_text(encoding="utf-8")) | {"torch_autocast": cast}


def _weight(p: Partitioned) -> torch.Tensor:
    return safe_get_local_fp32_param(p) if hasattr(p, "ds_id") else p._hp_mapping.hp_fragment


def _grad(p: Partitioned) -> torch.Tensor:
    if hasattr(p, "ds_id"):
        return safe_get_local_grad(p)
    return p._hp_mapping.get_lp_grad_fragment(p._index_in_param_group)


def _set_grad(p: Partitioned, grad: torch.Tensor) -> None:
    if hasattr(p, "ds_id"):
        safe_set_local_grad(p, grad)
    else:
        p._hp_mapping.get_lp_grad_fragment(p._index_in_param_group).copy_(grad)


def _shape(p: torch.nn.Parameter) -> tuple[int, ...]:
    """A parameter's own shape, also while it is partitioned."""
    return tuple(getattr(p, "ds_shape", p.shape))


@torch.no_grad()
def _put(p: Partitioned, array: np.ndarray | None) -> None:
    accelerator: Any = deepspeed.get_accelerator()
    device = torch.device(accelerator.current_device_name())
    value = torch.empty(_shape(p), dtype=torch.float32, device=device)
    if array is not None:
        value.copy_(torch.tensor(array))
    dist.broadcast(value, 0)
    if not hasattr(p, "ds_id"):
        safe_set_full_fp32_param(p, value)
        p.data.copy_(value)
        return
    size = p.ds_tensor.numel()
    padded = torch.zeros(size * dist.get_world_size(), device=device)
    padded[: value.numel()] = value.flatten()
    safe_set_local_fp32_param(p, padded[size * dist.get_rank() :][:size])
    with deepspeed.zero.GatheredParameters([p], modifier_rank=0):
        if dist.get_rank() == 0:
            p.data.copy_(value)
