"""Gradient steps of one model, on one device: the two calls that a distributed engine answers in its own way."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np
import torch

from flwr_agent.rl import weights


class Optimization:
    """Backward passes that add up, then one step: proximal term, clip, optimizer."""

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        *,
        max_grad_norm: float,
        differentiate: Callable[[torch.Tensor], None] = torch.Tensor.backward,
    ):
        self.model, self.optimizer, self.max_grad_norm = model, optimizer, max_grad_norm
        self._differentiate = differentiate
        self._mu, self._anchor = 0.0, []

    def begin(self, *, prox_mu: float = 0.0, reset: bool = True) -> None:
        """Start a round from the weights as they are, which the proximal term remembers as w_t.

        Gradients that an update which was cut short left behind are dropped; `reset` zeroes the optimizer's state where
        it lies.
        """
        self.optimizer.zero_grad()
        if not self.optimizer.state:
            self._allocate()
        elif reset:
            self._reset()
        self._mu, self._anchor = prox_mu, []  # the last round's is gone before this one's is made
        self._anchor = [p.detach().clone() for p in self._parameters] if prox_mu else []

    def load(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Copy trained values into the model in place.

        Raises:
            ProtocolError: if names or shapes are not the model's.
        """
        weights.load_weights(self.model, arrays)

    def values(self) -> Iterator[tuple[str, torch.Tensor]]:
        """The trained values by name."""
        yield from ((name, p.detach()) for name, p in weights.trained(self.model).items())

    def backward(self, loss: torch.Tensor, *, is_last: bool) -> None:  # noqa: ARG002 (a distributed engine has to know)
        """Add the gradient of `loss` to what the next step takes; `is_last` before that step."""
        self._differentiate(loss)

    def step(self) -> dict[str, float]:
        """Take one optimizer step; returns the norms of what was summed, of the proximal term and of what was applied."""
        norm, prox = self._norm(), self._add_prox()
        total = self._norm() if prox else norm
        if self.max_grad_norm:
            torch.nn.utils.clip_grads_with_norm_(self._parameters, self.max_grad_norm, total)
        self.optimizer.step()
        self.optimizer.zero_grad()
        applied = min(float(total), self.max_grad_norm or float(total))
        return {"grad_norm": float(norm), "prox_norm": prox, "grad_norm_applied": applied}

    def _allocate(self) -> None:
        """Make the optimizer's state, all zero, before the first update, so that memory does not grow there."""
        rates = [group["lr"] for group in self.optimizer.param_groups]
        for group in self.optimizer.param_groups:
            group["lr"] = 0.0
        for p in self._parameters:
            p.grad = torch.zeros_like(p)
        self.optimizer.step()
        self.optimizer.zero_grad()
        for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
            group["lr"] = rate
        self._reset()

    def _reset(self) -> None:
        for state in self.optimizer.state.values():
            for value in state.values():
                value.zero_()

    def _norm(self) -> torch.Tensor:
        return torch.nn.utils.get_total_norm([p.grad for p in self._parameters if p.grad is not None])

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

    @property
    def _parameters(self) -> list[torch.nn.Parameter]:
        return [p for p in self.model.parameters() if p.requires_grad]
