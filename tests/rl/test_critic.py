"""The critic of a federation: where it starts, that it learns and travels, and what it costs."""

import gc
import logging
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch
from fakes import config
from policies import chat, guessing, policy
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

from flwr_agent import arrays as files
from flwr_agent.arrays import ACTOR, CRITIC, digest, part
from flwr_agent.errors import ConfigError, ProtocolError
from flwr_agent.requests import TrainRequest
from flwr_agent.rl import critic
from flwr_agent.rl.learner import Learner, initial_model
from flwr_agent.rl.tiny import Recipe, to_model

PPO = {"algorithm__name": "ppo", "algorithm__group_size": 1, "trainer__tasks_per_step": 4}


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    return guessing(tmp_path_factory.mktemp("policy")) | PPO


@pytest.fixture(scope="module")
def run(keys):
    return config(**keys)


@pytest.fixture(scope="module")
def learner(run):
    return Learner(run)


@pytest.fixture(scope="module")
def request_(run):
    model = initial_model(run)
    return TrainRequest(
        experiment="e", round=1, client_id=0, config=run, arrays=model.arrays, base_digest=model.base_digest
    )


def save_critic(folder: Path, model: torch.nn.Module) -> str:
    folder.mkdir()
    save_file({name: p.detach().clone() for name, p in model.named_parameters()}, folder / "model.safetensors")
    return str(folder)


def trained(seed: int = 0) -> torch.nn.Module:
    """A critic whose head is not zero."""
    model = critic.build(policy(seed))
    with torch.no_grad():
        model.score.weight.fill_(0.5)
    return model


def test_a_fresh_critic_is_the_policys_backbone_under_a_head_of_zeros_and_says_so(run, caplog):
    with caplog.at_level(logging.WARNING, logger="flwr.agent"):
        arrays = initial_model(run).arrays
    assert "THE CRITIC STARTS FRESH" in caplog.text
    actor, values = part(arrays, ACTOR), part(arrays, CRITIC)
    head = values.keys() - actor.keys()
    assert head == {"score.weight", "score.bias"}
    assert not any(values[name].any() for name in head)
    assert all(np.array_equal(values[name], actor[name]) for name in values.keys() - head)
    assert actor.keys() - values.keys() == set(), "tied embeddings: the policy has no head of its own"


def test_making_a_critic_draws_from_no_global_generator():
    before = torch.get_rng_state()
    critic.build(policy())
    assert torch.equal(torch.get_rng_state(), before)


def test_a_trained_critic_is_loaded_from_a_folder_and_from_a_checkpoint_of_a_run(keys, tmp_path, caplog):
    model = trained()
    expected = {name: p.detach().numpy() for name, p in model.named_parameters()}
    checkpoint = tmp_path / "round-00002"
    checkpoint.mkdir()
    files.save(checkpoint / "model.safetensors", {CRITIC + name: values for name, values in expected.items()})
    for path in (save_critic(tmp_path / "critic", model), str(checkpoint)):
        found = part(initial_model(config(**keys, model__critic_path=path)).arrays, CRITIC)
        assert found.keys() == expected.keys()
        assert all(np.array_equal(found[name], expected[name]) for name in expected)
    assert "FRESH" not in caplog.text


def test_a_critic_of_another_architecture_is_refused_by_tensor_before_a_model_is_loaded(keys, tmp_path, monkeypatch):
    wide = critic.build(to_model(50, Recipe(hidden_size=32, num_layers=2, num_heads=2)))
    with pytest.raises(ConfigError, match=r"model.critic_path=.*the critic is 32 wide, the policy 16"):
        initial_model(config(**keys, model__critic_path=save_critic(tmp_path / "wide", wide)))
    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", None)  # refused before any weights are read
    deep = critic.build(to_model(len(chat().tokenizer), Recipe(hidden_size=16, num_layers=2, num_heads=1)))
    with pytest.raises(ConfigError, match=r"9 tensors differ from a critic .*first 'model.layers.1"):
        initial_model(config(**keys, model__critic_path=save_critic(tmp_path / "deep", deep)))


def test_a_round_moves_both_models_and_says_what_the_critic_measured(learner, request_):
    reply = learner.train(request_)
    assert reply.arrays.keys() == request_.arrays.keys()
    for prefix in (ACTOR, CRITIC):
        assert digest(part(reply.arrays, prefix)) != digest(part(request_.arrays, prefix))
    assert part(reply.arrays, CRITIC)["score.weight"].any()
    names = {"critic/loss", "critic/grad_norm", "critic/explained_variance", "critic/value", "critic/return"}
    assert names <= set(reply.metrics)
    assert all(np.isfinite(value) for value in reply.metrics.values())
    assert reply.metrics["episodes"] == 4


def test_what_was_trained_before_shows_in_no_answer(learner, request_):
    alone = digest(Learner(request_.config).train(request_).arrays)
    learner.train(replace(request_, client_id=1))
    assert digest(learner.train(request_).arrays) == alone


@pytest.mark.parametrize("lacking", ["critic/score.bias", "critic/"])
def test_a_request_without_the_whole_critic_is_refused(learner, request_, lacking):
    arrays = {name: values for name, values in request_.arrays.items() if not name.startswith(lacking)}
    with pytest.raises(ProtocolError, match="weights do not fit"):
        learner.train(replace(request_, arrays=arrays))


@pytest.mark.parametrize("extra", [{"algorithm__credit": "chained"}, {"rollout__mode": "concat"}])
def test_credit_flows_in_every_mode(keys, request_, extra):
    run = config(**keys, **extra)
    reply = Learner(run).train(replace(request_, config=run))
    assert np.isfinite(reply.metrics["critic/loss"])
    assert digest(reply.arrays) != digest(request_.arrays)


def test_the_same_federation_without_ppo_carries_no_critic(keys):
    grpo = {name: value for name, value in keys.items() if name not in PPO}
    assert {name.partition("/")[0] for name in initial_model(config(**grpo)).arrays} == {"actor"}


def tensors() -> tuple[int, int]:
    """How many are alive, and their bytes."""
    gc.collect()
    found = [thing for thing in gc.get_objects() if issubclass(type(thing), torch.Tensor)]
    return len(found), sum(t.untyped_storage().nbytes() for t in found)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("algorithm", ["ppo", "grpo"])
def test_fifty_client_rounds_leave_as_many_bytes_as_ten(keys, request_, algorithm):
    """One worker: tracked tensor bytes constant, resident memory at most 0.1 MB a round after round 10."""
    chosen = keys if algorithm == "ppo" else {name: v for name, v in keys.items() if name not in PPO}
    run = config(**chosen, algorithm__kl_coef=0.01, strategy__name="fedprox", strategy__prox_mu=0.1)
    learner, arrays, seen = Learner(run), initial_model(run).arrays, []
    for round_ in range(1, 51):
        reply = learner.train(replace(request_, config=run, round=round_, client_id=round_ % 2, arrays=arrays))
        arrays = reply.arrays
        del reply
        seen.append((tensors(), psutil.Process().memory_info().rss / 1e6))
    after = seen[10:]
    assert len({held for held, _ in after}) == 1
    slope = np.polyfit(np.arange(len(after)), [rss for _, rss in after], 1)[0]
    logging.getLogger("flwr.agent").warning(
        "%s: tensors, bytes %s; RSS slope %.4f MB a round", algorithm, after[0][0], slope
    )
    assert slope <= 0.1
