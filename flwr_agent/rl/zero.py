"""DeepSpeed's ZeRO behind the calls of `Optimization`: weights, gradients and optimizer state lie in partitions.

DeepSpeed reduces gradients and steps; proximal term and clip are ours, on each rank's full-precision partition in
between, so that they mean the same on any number of ranks and under any stage.
"""

from __future__ import annotations

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

# Without it DeepSpeed compiles a C++ extension when the first group starts on CPUs, which takes minutes; gloo does.
deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False


class ZeroOptimization:
    """`Optimization` on a DeepSpeed engine whose own clipping is off."""

    def __init__(self, engine: Any, *, max_grad_norm: float):
        self.engine, self.max_grad_norm = engine, max_grad_norm
        self._mu = 0.0
        self._anchor: list[torch.Tensor] = []

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

    def _add_prox(self, owned: list[torch.nn.Parameter], grads: list[torch.Tensor]) -> float:
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

    def _owned(self) -> Iterator[torch.nn.Parameter]:
        """Trained parameters of which a part lies here."""
        for p in self.engine.module.parameters():
            if p.requires_grad and (hasattr(p, "ds_id") or p._hp_mapping is not None):
                yield p


def _weight(p: torch.nn.Parameter) -> torch.Tensor:
    return safe_get_local_fp32_param(p) if hasattr(p, "ds_id") else p._hp_mapping.hp_fragment


def _grad(p: torch.nn.Parameter) -> torch.Tensor:
    if hasattr(p, "ds_id"):
        return safe_get_local_grad(p)
    return p._hp_mapping.get_lp_grad_fragment(p._index_in_param_group)


def _set_grad(p: torch.nn.Parameter, grad: torch.Tensor) -> None:
    if hasattr(p, "ds_id"):
        safe_set_local_grad(p, grad)
    else:
        p._hp_mapping.get_lp_grad_fragment(p._index_in_param_group).copy_(grad)


def shape(p: torch.nn.Parameter) -> tuple[int, ...]:
    """A parameter's own shape, also while it is partitioned."""
    return tuple(getattr(p, "ds_shape", p.shape))


@torch.no_grad()
def put(parameters: Mapping[str, torch.nn.Parameter], arrays: Mapping[str, np.ndarray]) -> None:
    """Set master and compute weights from rank 0's arrays, one parameter at a time; other ranks need none."""
    for name, p in parameters.items():
        device = torch.device(deepspeed.get_accelerator().current_device_name())
        value = torch.empty(shape(p), dtype=torch.float32, device=device)
        if dist.get_rank() == 0:
            value.copy_(torch.tensor(arrays[name]))
        dist.broadcast(value, 0)
        if not hasattr(p, "ds_id"):
            safe_set_full_fp32_param(p, value)
            p.data.copy_(value)
            continue
        size = p.ds_tensor.numel()
        padded = torch.zeros(size * dist.get_world_size(), device=device)
        padded[: value.numel()] = value.flatten()
        safe_set_local_fp32_param(p, padded[size * dist.get_rank() :][:size])
        with deepspeed.zero.GatheredParameters([p], modifier_rank=0):
            if dist.get_rank() == 0:
                p.data.copy_(value)


@torch.no_grad()
def masters(parameters: Mapping[str, torch.nn.Parameter]) -> Iterator[tuple[str, torch.Tensor]]:
    """The full fp32 values, gathered from all ranks one parameter at a time; every rank has to go through all of them."""
    for name, p in parameters.items():
        yield name, safe_get_full_fp32_param(p).reshape(shape(p))
