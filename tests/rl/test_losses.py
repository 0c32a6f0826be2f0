"""The objective on three tokens, by hand, and what a step measures."""

import math

import pytest
import torch
from fakes import config
from policies import chat, policy, watched_scores

from flwr_agent.rl.batch import is_own, right_pad, to_batch
from flwr_agent.rl.episode import Episode, Group, Turn
from flwr_agent.rl.losses import Stats, importance, k3, policy_measures
from flwr_agent.rl.samples import to_samples
from flwr_agent.rl.trl_seam import Seam

A = 0.5 / (0.5 + 1e-6)
"""Returns 1 and 0: mean 0.5, standard deviation 0.5; advantages A and -A."""
RATIOS = ([1.5, 0.9], [0.5])
"""New over old probability: two tokens of the won episode, one of the lost; clip 0.2."""
SURROGATE = -(1.2 * A + 0.9 * A - 0.8 * A) / 3
"""1.5 is clipped to 1.2; 0.9 is inside; at a negative advantage min(-0.5, -0.8) keeps the clipped 0.8."""
K3 = 2 - math.log(2) - 1
"""The base gives twice the probability of the policy: exp(log 2) - log 2 - 1."""


def uniform():
    """A policy that gives every word the same probability, whatever it reads."""
    model = policy()
    with torch.no_grad():
        for p in model.parameters():
            p.zero_()
    return model


def example(seam, run):
    won, lost = (
        Episode("t", i, [Turn([5, 6], ids, [-1.0] * len(ids), "", is_valid=True)], score=s, success=bool(s))
        for i, (ids, s) in enumerate([([7, 8], 1.0), ([9], 0.0)])
    )
    rows = to_samples([Group("t", [won, lost])], run.algorithm, run.rollout)
    batch = to_batch(rows, pad_id=0, num_tokens=3, device="cpu")
    uniform_logp = seam.score(seam.model, batch)
    batch["old_per_token_logps"] = uniform_logp - right_pad([[math.log(r) for r in row] for row in RATIOS], 0)
    batch["ref_per_token_logps"] = uniform_logp + math.log(2)
    return batch


@pytest.mark.parametrize("kl_coef", [0.0, 0.1])
def test_three_tokens_by_hand(kl_coef):
    run = config(
        env__name="tinyguess",
        algorithm__group_size=2,
        algorithm__reward_scale=1.0,
        algorithm__kl_coef=kl_coef,
        algorithm__importance_cap=0.0,
    )
    seam = Seam(uniform(), chat().tokenizer, run)
    batch = example(seam, run)
    seen = watched_scores(seam)
    loss = seam.loss(batch)
    loss.backward()
    assert loss.item() == pytest.approx(SURROGATE + kl_coef * K3, rel=1e-5)
    # d k3 / d logp = 1 - exp(log 2) = -1 at each of the three tokens; the padding gets nothing.
    kl = -kl_coef / 3
    expected = torch.tensor([[kl, kl - 0.9 * A / 3], [kl, 0.0]])
    torch.testing.assert_close(seen[0].grad, expected, rtol=1e-5, atol=1e-7)


def test_stats_are_token_means_and_ignore_other_tokens():
    batch = {
        "completion_mask": torch.tensor([[1, 1, 1], [1, 0, 0]]),
        "tool_mask": torch.tensor([[1, 0, 1], [1, 0, 0]]),
        "old_per_token_logps": torch.tensor([[-1.0, 9.0, -1.0], [-1.0, 9.0, 9.0]]),
        "ref_per_token_logps": torch.tensor([[-1.0, math.inf, -1.0], [-1.0, math.nan, 9.0]]),
        "sampler_per_token_logps": torch.tensor([[-1.0, 5.0, -2.0], [-1.0, 5.0, 5.0]]),
    }
    now = torch.tensor([[-1.0, math.nan, -0.5], [-1.1, 0.0, 0.0]])
    entropy = torch.tensor([[1.0, math.nan, 2.0], [6.0, 7.0, 7.0]])
    stats = Stats()
    stats.add(is_own(batch), policy_measures(batch, now, entropy, clip=0.2, cap=2.0))
    stats.add_step({"loss": 0.5, "grad_norm": 2.0, "prox_norm": 0.5, "grad_norm_applied": 1.0})
    stats.add_step({"loss": 0.25, "grad_norm": 4.0, "prox_norm": 0.0, "grad_norm_applied": 1.0})
    e = math.e
    assert stats.policy() == pytest.approx(
        {
            "entropy": 3.0,
            "clip_fraction": 1 / 3,
            "kl": sum(math.exp(d) - d - 1 for d in (0.0, -0.5, 0.1)) / 3,
            "sampler_gap": 1 / 3,
            "sampler_kl": (e - 2) / 3,
            "importance_truncated": 1 / 3,
            "importance_ess": (2 + e) ** 2 / (3 * (2 + e**2)),
            "grad_norm": 3.0,
            "grad_norm_applied": 1.0,
            "prox_norm": 0.25,
            "loss": 0.375,
            "updates": 2.0,
            "padding_tokens": 0.0,
        }
    )


def test_importance_weights_are_ratios_up_to_the_cap():
    found = importance(torch.tensor([-1.0, -1.0, -1.0]), torch.tensor([-1.0, -1.0 - math.log(4), -0.5]), 2.0)
    assert found.tolist() == pytest.approx([1.0, 2.0, math.exp(-0.5)])


def test_k3_is_unbiased_for_the_divergence_and_never_negative():
    draw = torch.Generator().manual_seed(0)
    p, q = (torch.randn(50, generator=draw, dtype=torch.float64).log_softmax(0) for _ in range(2))
    estimate = k3(q, p)
    assert (estimate >= 0).all()
    assert float((p.exp() * estimate).sum()) == pytest.approx(float((p.exp() * (p - q)).sum()))
    assert (k3(p, p) == 0).all()
