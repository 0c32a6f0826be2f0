"""Gradient steps of one model."""

import weakref

import pytest
import torch

from flwr_agent.rl.optimize import Optimization


def of(max_grad_norm=0.0, lr=0.1, cls=Optimization):
    model = torch.nn.Linear(2, 1, bias=False)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[3.0, 4.0]]))
    return cls(model, torch.optim.SGD(model.parameters(), lr=lr), max_grad_norm=max_grad_norm)


def loss(part: Optimization) -> torch.Tensor:
    return (part.model.weight * torch.tensor([[6.0, 8.0]])).sum()


def test_backward_passes_add_up_until_a_step_is_taken():
    part = of()
    part.begin()
    part.backward(loss(part), is_last=False)
    part.backward(loss(part), is_last=True)
    assert part.step() == pytest.approx({"grad_norm": 20.0, "prox_norm": 0.0, "grad_norm_applied": 20.0})
    assert part.model.weight.grad is None
    torch.testing.assert_close(part.model.weight.data, torch.tensor([[1.8, 2.4]]))


def test_the_clip_binds_the_sum_of_gradient_and_proximal_term():
    """A step of -0.6 and -0.8 leaves w - w_t = (-0.6, -0.8); with mu 5 the term is (-3, -4) against (6, 8): (3, 4)."""
    part = of(max_grad_norm=1.0, lr=1.0)
    part.begin(prox_mu=5.0)
    part.backward(loss(part), is_last=True)
    assert part.step() == pytest.approx({"grad_norm": 10.0, "prox_norm": 0.0, "grad_norm_applied": 1.0})
    part.backward(loss(part), is_last=True)
    assert part.step() == pytest.approx({"grad_norm": 10.0, "prox_norm": 5.0, "grad_norm_applied": 1.0}, rel=1e-5)
    torch.testing.assert_close(part.model.weight.data, torch.tensor([[1.8, 2.4]]))


def test_a_rounds_anchor_is_gone_before_the_next_is_made():
    seen = []

    class Watched(Optimization):
        @property
        def _parameters(self):
            seen.append([ref() is None for ref in refs])
            return super()._parameters

    refs: list[weakref.ref] = []
    part = of(cls=Watched)
    part.begin(prox_mu=1.0)
    refs += [weakref.ref(anchor) for anchor in part._anchor]
    part.begin(prox_mu=1.0)
    assert seen[-1] == [True]
