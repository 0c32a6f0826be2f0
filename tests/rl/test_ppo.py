"""PPO against its formulas in float64 (tests/plain_ppo.py)."""

import pytest
import torch
from fakes import config
from plain_ppo import PlainPPO
from policies import chat, distance, policy, rewarded, start

from flwr_agent.rl.batch import minibatches, to_batch
from flwr_agent.rl.losses import critic_weights
from flwr_agent.rl.trainer import Trainer
from flwr_agent.rl.weights import to_arrays

EXACT = 1e-6
"""Relative, in float64; advantages are stored in fp32."""
OPTIONS = [
    {},
    {"algorithm__critic_loss": "legacy_exact", "algorithm__value_clip": 0.0, "algorithm__whiten": False},
    {"algorithm__gamma": 0.95, "algorithm__gae_lambda": 0.8, "algorithm__kl_coef": 0.05, "algorithm__dual_clip": 1.5},
    {"algorithm__entropy_coef": 0.1, "algorithm__importance_cap": 0.0},
]
PPO = {"algorithm__name": "ppo", "algorithm__group_size": 1, "env__name": "tinyguess", "rollout__temperature": 1.3}


def trainer_of(**keys) -> Trainer:
    base = policy(7) if keys.get("algorithm__kl_coef") else None
    trainer = Trainer(policy(), base, chat(), config(**PPO | keys))
    for model in (trainer.model, trainer.critic.model, base):
        if model is not None:
            model.double()
    noise = torch.Generator().manual_seed(5)
    with torch.no_grad():  # a head of zeros would teach its backbone nothing
        for p in trainer.critic.model.score.parameters():
            p.copy_(torch.randn(p.shape, generator=noise, dtype=p.dtype))
    return trainer


def plain_of(trainer: Trainer) -> PlainPPO:
    return PlainPPO(trainer.model, trainer.critic.model, trainer.base, trainer.config)


def seen_by(trainer: Trainer) -> tuple[list, list]:
    """Lists that grow by the gradients of the policy's and the critic's steps to come, before they are clipped."""
    found: tuple[list, list] = ([], [])
    for part, seen in zip((trainer.actor, trainer.critic.optimization), found, strict=True):

        def step(part=part, seen=seen, take=part.step):
            seen.append({name: p.grad.clone() for name, p in part.model.named_parameters()})
            return take()

        part.step = step
    return found


def weights_of(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: p.detach().clone() for name, p in model.named_parameters()}


def moved(before: dict[str, torch.Tensor], after: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: after[name] - before[name] for name in before}


@pytest.mark.parametrize("options", OPTIONS)
def test_loss_and_gradient_are_those_of_the_formula(options):
    trainer, rows = trainer_of(**options), rewarded(9, 3)
    plain = plain_of(trainer)
    plain.prepare(rows)
    loss, critic_loss = plain.losses(minibatches(len(rows), 0, seed=4)[0])
    actor, critic = seen_by(trainer)
    metrics = trainer.train(rows, seed=4)
    assert metrics["loss"] == pytest.approx(loss.item(), rel=EXACT)
    assert metrics["critic/loss"] == pytest.approx(critic_loss.item(), rel=EXACT)
    assert distance(actor[0], plain.optimizer.gradient(loss)) < EXACT
    assert distance(critic[0], plain.critic_optimizer.gradient(critic_loss)) < EXACT


@pytest.mark.parametrize("options", OPTIONS)
def test_whole_steps_are_those_of_the_formula(options):
    """Old values and log-probs, advantages, minibatches, both clips of norms and both AdamWs together."""
    keys = {"trainer__minibatch_rows": 4, "trainer__epochs": 2, "trainer__lr": 0.02, "trainer__critic_lr": 0.03}
    limits = {"trainer__max_grad_norm": 0.1, "trainer__critic_max_grad_norm": 0.5, "trainer__micro_rows": 3}
    trainer, rows = trainer_of(**keys, **limits, **options), rewarded(10, 1)
    plain = plain_of(trainer)
    before = weights_of(trainer.model), weights_of(trainer.critic.model)
    metrics = trainer.train(rows, seed=3)
    plain.train(rows, [step for epoch in range(2) for step in minibatches(10, 4, seed=3 + epoch)])
    assert distance(moved(before[0], weights_of(trainer.model)), moved(before[0], plain.weights)) < EXACT
    critic = moved(before[1], weights_of(plain.critic))
    assert distance(moved(before[1], weights_of(trainer.critic.model)), critic) < EXACT
    norms = plain.critic_optimizer.grad_norms
    assert metrics["critic/grad_norm"] == pytest.approx(sum(norms) / len(norms), rel=EXACT)
    assert sorted(norms)[2] > 0.5, "the critic's own clip has to bind"
    if trainer.config.algorithm.value_clip:
        assert metrics["critic/clip_fraction"] > 0.02


@pytest.mark.parametrize("mode", ["global_token_mean", "legacy_exact"])
@pytest.mark.parametrize("micro_rows", [1, 2, 5, 64])
def test_the_critics_loss_and_gradient_do_not_depend_on_the_split_in_forwards(micro_rows, mode):
    def first_step(size):
        trainer = trainer_of(trainer__micro_rows=size, algorithm__critic_loss=mode)
        _, critic = seen_by(trainer)
        return trainer.train(rewarded(11, 2), seed=0)["critic/loss"], critic[0]

    (loss, gradient), (expected_loss, expected) = first_step(micro_rows), first_step(11)
    assert loss == pytest.approx(expected_loss, rel=1e-12)
    assert distance(gradient, expected) < 1e-12


def test_legacy_weights_are_the_mean_of_the_means_of_four_rows():
    found = critic_weights([3, 1, 2, 2, 5, 5], "legacy_exact")
    assert found == pytest.approx([1 / 16] * 4 + [1 / 20] * 2)
    assert critic_weights([3, 1, 2], "global_token_mean") == pytest.approx([1 / 6] * 3)


def test_rows_that_are_all_masked_change_neither_model():
    """As the filler that gives every process equally many forwards has to be."""
    rows = rewarded(6, 4)
    empty = [
        type(row)(row.prompt_ids, row.response_ids, *[[0] * len(row.mask)] * 3, rewards=[0.0] * len(row.mask))
        for row in rewarded(5, 5)
    ]
    found = []
    for samples in (rows, rows + empty):
        trainer = trainer_of()
        seen = seen_by(trainer)
        trainer.train(samples, seed=0)
        found.append([part[0] for part in seen])
    for filled, alone in zip(found[1], found[0], strict=True):
        assert distance(filled, alone) < 1e-9


def test_the_proximal_term_holds_the_policy_and_leaves_the_critic_alone():
    after = {}
    for mu in (0.0, 1.0):
        trainer = trainer_of(trainer__minibatch_rows=2, trainer__lr=0.02)
        start(trainer, prox_mu=mu)
        before = weights_of(trainer.model)
        trainer.train(rewarded(12, 6), seed=1)
        drift = distance(weights_of(trainer.model), before)
        after[mu] = drift, weights_of(trainer.critic.model)
    assert after[1.0][0] < 0.9 * after[0.0][0]
    assert all(torch.equal(a, after[0.0][1][name]) for name, a in after[1.0][1].items())


def test_weights_that_the_sampler_and_the_trainer_agree_on_change_no_bit():
    """Log-probs that are the trainer's own make every importance weight exactly one."""
    trainer = trainer_of()
    rows = rewarded(8, 7)
    batch = to_batch(rows, pad_id=0, num_tokens=30, device="cpu")
    scores = trainer.seam.score(trainer.model, batch)
    batch |= {"old_per_token_logps": scores, "sampler_per_token_logps": scores}
    batch["advantages"] = torch.randn(scores.shape, generator=torch.Generator().manual_seed(0), dtype=scores.dtype)

    def outcome(seam):
        seam.model.zero_grad()
        loss = seam.loss(batch)
        loss.backward()
        return [loss.detach(), *(p.grad.clone() for p in seam.model.parameters())]

    weighed, plain = outcome(trainer.seam), outcome(trainer_of(algorithm__importance_cap=0.0).seam)
    assert all(torch.equal(a, b) for a, b in zip(weighed, plain, strict=True))
    batch["sampler_per_token_logps"] = scores - 0.5
    assert not torch.equal(outcome(trainer.seam)[1], plain[1])


def test_the_kl_anchor_of_a_round_is_the_model_it_starts_from():
    trainer = trainer_of(algorithm__kl_coef=0.1, algorithm__kl_anchor="round")
    other = policy(seed=9)
    trainer.begin_round(to_arrays(other), critic=to_arrays(trainer.critic.model))
    assert all(torch.equal(p.float(), q) for p, q in zip(trainer.base.parameters(), other.parameters(), strict=True))
    metrics = trainer.train(rewarded(4, 8), seed=0)
    assert metrics["kl"] == pytest.approx(0.0, abs=1e-9)
