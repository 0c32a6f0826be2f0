"""The trainer against GRPO written out in float64 (tests/plain_grpo.py)."""

import random

import numpy as np
import pytest
import torch
from fakes import config
from plain_grpo import PlainTrainer
from policies import chat, distance, gradients, policy, random_rows, start

from flwr_agent.rl.batch import minibatches, right_pad, to_batch
from flwr_agent.rl.trainer import Trainer

EXACT = 1e-9
"""Relative, in float64."""


def trainer_of(base=None, **keys):
    trainer = Trainer(policy(), base, chat(), config(**{"env__name": "tinyguess", "rollout__temperature": 1.3} | keys))
    trainer.model.double()
    if base is not None:
        base.double()
    return trainer


def plain_of(trainer, mu=0.0):
    return PlainTrainer(trainer.model, trainer.base, trainer.config, mu)


def weights_of(trainer):
    return {name: p.detach().clone() for name, p in trainer.model.named_parameters()}


@pytest.mark.parametrize(
    ("seed", "keys"),
    [
        (0, {}),
        (1, {"kl_coef": 0.05}),
        (2, {"kl_coef": 0.05, "dual_clip": 1.5, "entropy_coef": 0.1}),
        (3, {"dual_clip": 1.3, "importance_cap": 0.0}),
        (4, {"entropy_coef": 0.1, "importance_cap": 0.5}),
    ],
)
def test_loss_and_gradient_are_those_of_the_formula(seed, keys):
    kl_coef = keys.get("kl_coef", 0.0)
    trainer = trainer_of(policy(7) if kl_coef else None, **{f"algorithm__{name}": v for name, v in keys.items()})
    plain, rows = plain_of(trainer), random_rows(9, seed)
    noise = torch.Generator().manual_seed(seed)
    now = [plain.scores(row).detach() for row in rows]
    old = [row + 0.6 * torch.randn(row.shape, generator=noise, dtype=row.dtype) for row in now]
    batch = to_batch(rows, pad_id=0, num_tokens=sum(row.num_tokens for row in rows), device="cpu")
    batch["old_per_token_logps"] = right_pad(old, 0)
    if kl_coef:
        batch["ref_per_token_logps"] = trainer.seam.score(trainer.base, batch)
    loss = trainer.seam.loss(batch)
    loss.backward()
    assert loss.item() == pytest.approx(plain.loss(rows, old).item(), rel=EXACT)
    assert distance({n: p.grad for n, p in trainer.model.named_parameters()}, plain.gradient(rows, old)) < EXACT
    assert min(plain.ratios) < 0.8
    assert max(plain.ratios) > 1.2


@pytest.mark.parametrize("mu", [0.0, 2.0])
@pytest.mark.parametrize("kl_coef", [0.0, 0.05])
def test_a_whole_step_is_that_of_the_formula(kl_coef, mu):
    """Old log-probs, minibatches, k3, the proximal term, the norm's clip and AdamW together, every clip binding."""
    keys = {"algorithm__kl_coef": kl_coef, "trainer__minibatch_rows": 4, "trainer__epochs": 2, "trainer__lr": 0.02}
    limits = {"trainer__max_grad_norm": 0.1, "trainer__weight_decay": 0.1, "trainer__micro_rows": 3}
    trainer = start(trainer_of(policy(7) if kl_coef else None, **keys, **limits), prox_mu=mu)
    plain, rows, before = plain_of(trainer, mu), random_rows(10), weights_of(trainer)
    metrics = trainer.train(rows, seed=3)
    plain.train(rows, [step for epoch in range(2) for step in minibatches(10, 4, seed=3 + epoch)])
    moved, expected = (
        {name: after[name] - before[name] for name in before} for after in (weights_of(trainer), plain.weights)
    )
    assert distance(moved, expected) < EXACT
    assert metrics["updates"] == plain.optimizer.num_steps == 6
    assert metrics["grad_norm"] == pytest.approx(np.mean(plain.optimizer.grad_norms), rel=EXACT)
    if not mu:
        applied = np.minimum(plain.optimizer.grad_norms, 0.1).mean()
        assert metrics["grad_norm_applied"] == pytest.approx(applied, rel=EXACT)
    assert metrics["prox_norm"] == pytest.approx(np.mean(plain.optimizer.prox_norms), rel=EXACT)
    assert metrics["clip_fraction"] == pytest.approx(np.mean([abs(r - 1) > 0.2 for r in plain.ratios]))
    assert metrics["clip_fraction"] > 0.1
    assert np.median(plain.optimizer.grad_norms) > 0.1


def test_rows_without_signal_are_skipped_and_change_nothing():
    """Minibatches are cut from all rows, divide by all their tokens, and step even when no row of theirs has signal."""
    keys = {"trainer__minibatch_rows": 3, "trainer__epochs": 2, "trainer__lr": 0.02}
    trainer, steps = start(trainer_of(**keys)), [s for e in range(2) for s in minibatches(12, 3, seed=5 + e)]
    rows = random_rows(12, zero=[*steps[1], *steps[2][:1]])
    plain, before = plain_of(trainer), weights_of(trainer)
    metrics = trainer.train(rows, seed=5)
    plain.train(rows, steps)
    moved, expected = (
        {name: after[name] - before[name] for name in before} for after in (weights_of(trainer), plain.weights)
    )
    assert distance(moved, expected) < EXACT
    assert metrics["updates"] == len(steps)
    assert 0 < metrics["rows_dropped"] < 4
    assert metrics["tokens_trained"] < sum(row.num_tokens for row in rows)


@pytest.mark.parametrize("micro_rows", [1, 2, 5, 64])
@pytest.mark.parametrize("kl_coef", [0.0, 0.05])
def test_any_split_in_forwards_gives_the_gradient_of_one_batch(micro_rows, kl_coef):
    def gradient(size):
        knobs = {"algorithm__kl_coef": kl_coef, "algorithm__entropy_coef": kl_coef}
        trainer = trainer_of(policy(7) if kl_coef else None, **knobs, trainer__micro_rows=size)
        seen = gradients(trainer)
        trainer.train(random_rows(11), seed=0)
        return seen[0]

    assert distance(gradient(micro_rows), gradient(11)) < EXACT


def test_rows_of_others_tokens_alone_change_nothing():
    rows = random_rows(6)
    filler = [type(row)(row.prompt_ids, row.response_ids, *[[0] * len(row.mask)] * 3) for row in random_rows(5, seed=1)]
    found = []
    for samples in (rows, rows + filler):
        trainer = trainer_of(policy(7), algorithm__kl_coef=0.05)
        seen = gradients(trainer)
        metrics = trainer.train(samples, seed=0)
        found.append((seen[0], [metrics[name] for name in ("loss", "entropy", "kl", "tokens_trained")]))
    (alone, alone_metrics), (filled, filled_metrics) = found
    assert distance(filled, alone) < EXACT
    assert filled_metrics == pytest.approx(alone_metrics)


def test_a_step_draws_from_no_global_generator():
    trainer = start(trainer_of(trainer__minibatch_rows=4, trainer__epochs=2))
    before = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()  # noqa: NPY002
    trainer.train(random_rows(10), seed=1)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert random.getstate() == before[1]
    assert np.random.get_state()[1].tolist() == before[2]  # noqa: NPY002


def test_without_rows_nothing_moves_and_every_metric_is_there():
    trainer = start(trainer_of())
    before = weights_of(trainer)
    metrics = trainer.train([], seed=0)
    assert all(torch.equal(before[name], after) for name, after in weights_of(trainer).items())
    assert set(metrics) == set(trainer.train(random_rows(2), seed=0))
    assert set(metrics.values()) == {0.0}
