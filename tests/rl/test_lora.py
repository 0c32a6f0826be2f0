"""Adapters: what travels, what they start as, what they are measured against, and ranks that differ."""

import numpy as np
import pytest
import torch
from fakes import config
from policies import chat, guessing, policy, random_rows, save_policy
from transformers import AutoModelForCausalLM

from flwr_agent.arrays import digest
from flwr_agent.errors import ConfigError, ProtocolError
from flwr_agent.requests import TrainRequest
from flwr_agent.rl.batch import to_batch
from flwr_agent.rl.learner import Learner, initial_model
from flwr_agent.rl.lora import Unadapted, adapt, cut
from flwr_agent.rl.trainer import Trainer
from flwr_agent.rl.weights import load_weights, to_arrays, trained, whole

RANK = 4


def run(**keys):
    return config(**{"env__name": "tinyguess", "model__lora__rank": RANK, "trainer__lr": 0.05} | keys)


def trainer_of(run_config, base=None):
    adapted = adapt(policy(), run_config)
    trainer = Trainer(adapted, Unadapted(adapted) if base else None, chat(), run_config)
    trainer.model.double()
    return trainer


def logits(model):
    with torch.no_grad():
        return model(input_ids=torch.arange(4, 20)[None]).logits


def moved(adapted, seed=0):
    """Arrays of an adapter that changes the policy."""
    noise = np.random.default_rng(seed)
    return {n: a + 0.3 * noise.standard_normal(a.shape).astype("f4") for n, a in to_arrays(adapted).items()}


def test_an_adapter_changes_nothing_at_first_and_is_the_same_everywhere():
    one, two, other = (adapt(policy(), run(seed=seed)) for seed in (1, 1, 2))
    assert torch.equal(logits(one), logits(policy()))
    assert digest(to_arrays(one)) == digest(to_arrays(two)) != digest(to_arrays(other))


@pytest.mark.parametrize(("strategy", "factors"), [("lora_average", "AB"), ("lora_frozen_a", "B"), ("fedavg", "AB")])
def test_only_adapter_values_travel(strategy, factors):
    adapted = adapt(policy(), run(strategy__name=strategy))
    arrays = to_arrays(adapted)
    assert {name.split(".lora_")[1] for name in arrays} == {f"{factor}.weight" for factor in factors}
    assert sum(values.size for values in arrays.values()) < 0.5 * sum(p.numel() for p in policy().parameters()) * 2
    assert {values.dtype for values in arrays.values()} == {np.dtype("f4")}
    assert all(min(values.shape) == RANK for values in arrays.values())


def test_a_frozen_a_is_seeded_and_never_moves():
    trainer = trainer_of(run(strategy__name="lora_frozen_a"))
    trainer.begin_round(to_arrays(trainer.model))
    before = {name: p.clone() for name, p in trainer.model.named_parameters()}
    trainer.train(random_rows(6), seed=0)
    changed = {name for name, p in trainer.model.named_parameters() if not torch.equal(p, before[name])}
    assert changed
    assert all(".lora_B." in name for name in changed)


def test_training_moves_adapters_and_leaves_the_model_under_them():
    trainer = trainer_of(run(algorithm__kl_coef=0.1), base=True)
    trainer.begin_round(to_arrays(trainer.model))
    before = {name: p.clone() for name, p in trainer.model.named_parameters()}
    trainer.train(random_rows(6), seed=0)
    trainer.train(random_rows(6), seed=1)
    changed = {name for name, p in trainer.model.named_parameters() if not torch.equal(p, before[name])}
    assert changed == {name for name in before if ".lora_" in name}


def test_the_base_of_the_kl_term_is_the_original_model_unmerged():
    trainer = trainer_of(run(algorithm__kl_coef=0.1), base=True)
    trainer.begin_round(moved(trainer.model))
    plain = Trainer(policy(), None, chat(), run(model__lora__rank=0))
    plain.model.double()
    batch = to_batch(random_rows(5), pad_id=0, num_tokens=5, device="cpu")
    base = trainer.seam.score(trainer.base, batch)
    torch.testing.assert_close(base, plain.seam.score(plain.model, batch), rtol=1e-12, atol=1e-12)
    assert not torch.allclose(base, trainer.seam.score(trainer.model, batch), atol=1e-2)


def test_the_whole_policy_has_the_plain_names_and_the_adapted_outputs():
    adapted = adapt(policy(), run())
    load_weights(adapted, moved(adapted))
    plain = policy(seed=9)
    plain.load_state_dict(dict(whole(adapted)), strict=False)
    plain.tie_weights()
    assert {name for name, _ in whole(adapted)} == set(dict(policy().named_parameters()))
    torch.testing.assert_close(logits(plain), logits(adapted), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("mu", [0.0, 1.0])
def test_a_client_of_a_lower_rank_trains_that_adapter_at_the_same_scale(mu):
    """Padded with zeros, it takes the very steps of an adapter of its own rank with the same alpha / rank."""
    low, rows = 2, random_rows(8)
    full = trainer_of(run(model__lora__alpha=8.0))
    own = trainer_of(run(model__lora__alpha=4.0, model__lora__rank=low))
    start = cut(moved(full.model), low)
    full.begin_round(start, prox_mu=mu)
    own.begin_round({n: a[:low] if "_A." in n else a[:, :low] for n, a in start.items()}, prox_mu=mu)
    for seed in range(3):
        full.train(rows, seed=seed)
        own.train(rows, seed=seed)
    for name, values in full.weights().items():
        kept, rest = (values[:low], values[low:]) if "_A." in name else (values[:, :low], values[:, low:])
        np.testing.assert_allclose(kept, own.weights()[name], rtol=1e-6, atol=1e-7)
        assert not rest.any()
    assert any(np.abs(values - start[name]).max() > 0.01 for name, values in full.weights().items())


def test_the_gradient_is_that_of_the_merged_weights():
    """Chain rule by hand: dL/dB = s (dL/dW) A^T, with dL/dW from the plain model at the merged weights."""
    run_config = run()
    trainer = trainer_of(run_config)
    trainer.begin_round(moved(trainer.model))
    plain = Trainer(policy(), None, chat(), run(model__lora__rank=0))
    plain.model.double()
    with torch.no_grad():
        own = dict(plain.model.named_parameters())
        for name, value in whole(trainer.model):
            own[name].copy_(value)
    rows = random_rows(7)
    batch = to_batch(rows, pad_id=0, num_tokens=sum(row.num_tokens for row in rows), device="cpu")
    for one in (plain, trainer):
        one.seam.loss(batch).backward()
    scale, found, expected = run_config.model.lora.alpha / RANK, trained(trainer.model), {}
    for name in found:
        if ".lora_B." in name:
            stem = name.partition(".lora_B.")[0]
            weight = f"{stem.removeprefix('base_model.model.')}.weight"
            expected[name] = scale * own[weight].grad @ found[f"{stem}.lora_A.weight"].T
    assert expected
    for name, value in expected.items():
        torch.testing.assert_close(found[name].grad, value, rtol=1e-7, atol=1e-12)


@pytest.mark.parametrize("targets", ["q_proj,v_proj", " q_proj , v_proj", "self_attn.q_proj,v_proj"])
def test_targets_choose_modules(targets):
    names = to_arrays(adapt(policy(), run(model__lora__targets=targets)))
    assert {name.split(".")[-3] for name in names} == {"q_proj", "v_proj"}


@pytest.mark.parametrize(
    ("targets", "fix"),
    [
        ("nobody", "'nobody' is no linear module"),
        ("q_proj,nobody", "'nobody' is no linear module"),
        ("q_proj,", "'' is no linear module"),
        ("proj", "'proj' is no linear module"),
        ("embed_tokens", "'embed_tokens' is no linear module"),
        ("q_proj,lm_head", "'lm_head' shares its weights"),
    ],
)
def test_a_target_that_cannot_be_adapted_is_refused(targets, fix):
    with pytest.raises(ConfigError, match=fix) as caught:
        adapt(policy(), run(model__lora__targets=targets))
    assert caught.value.key == "model.lora.targets"


def test_a_head_with_weights_of_its_own_can_be_adapted():
    untied = policy()
    untied.lm_head.weight = torch.nn.Parameter(untied.lm_head.weight.detach().clone())
    adapted = adapt(untied, run(model__lora__targets="lm_head"))
    load_weights(adapted, moved(adapted))
    before = logits(adapted)
    torch.testing.assert_close(logits(adapted.merge_and_unload()), before, rtol=1e-4, atol=1e-4)


def test_all_linear_is_every_linear_module_but_the_head():
    adapted = {name.split(".")[-3] for name in to_arrays(adapt(policy(), run()))}
    linear = {n.split(".")[-1] for n, m in policy().named_modules() if isinstance(m, torch.nn.Linear)}
    assert adapted == linear - {"lm_head"}


@pytest.mark.parametrize("rank", [17, 4096])
def test_a_rank_above_every_adapted_matrix_is_refused(rank):
    with pytest.raises(ConfigError, match="at most 16 rows or columns") as caught:
        adapt(policy(), run(model__lora__rank=rank))
    assert caught.value.key == "model.lora.rank"


def test_a_round_answers_with_adapters_and_another_base_model_is_refused(tmp_path):
    keys = guessing(tmp_path) | {"model__lora__rank": 2, "strategy__name": "lora_average"}
    run_config = config(**keys)
    first, learner = initial_model(run_config), Learner(run_config)
    request = {"experiment": "e", "round": 1, "config": run_config, "arrays": first.arrays}
    reply = learner.train(TrainRequest(client_id=0, base_digest=first.base_digest, **request))
    assert reply.arrays.keys() == first.arrays.keys()
    assert digest(reply.arrays) != digest(first.arrays)
    with pytest.raises(ProtocolError, match="base model here is not the server's"):
        learner.train(TrainRequest(client_id=0, base_digest="0" * 64, **request))


def test_clients_take_their_ranks_in_turn(tmp_path):
    keys = guessing(tmp_path) | {"model__lora__rank": 3, "model__lora__client_ranks": "3,1"}
    keys |= {"federation__total_clients": 3}
    run_config = config(**keys)
    first, learner = initial_model(run_config), Learner(run_config)
    request = {"experiment": "e", "round": 1, "config": run_config, "arrays": first.arrays}
    used = []
    for client in range(3):
        reply = learner.train(TrainRequest(client_id=client, base_digest=first.base_digest, **request))
        [a] = [values for name, values in reply.arrays.items() if "q_proj.lora_A" in name]
        used.append(int(a.any(axis=1).sum()))
    assert used == [3, 1, 3]


def test_frozen_weights_stand_in_the_compute_dtype_and_adapters_in_fp32(tmp_path):
    from flwr_agent.rl.model import load_policy

    adapted = load_policy(run(model__path=save_policy(tmp_path), model__compute_dtype="bfloat16"))
    assert {p.dtype for n, p in adapted.named_parameters() if ".lora_" in n} == {torch.float32}
    assert {p.dtype for n, p in adapted.named_parameters() if ".lora_" not in n} == {torch.bfloat16}
    assert AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32).dtype == torch.float32
