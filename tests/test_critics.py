"""Where PPO's critic starts, told from tensor names alone."""

import json
from pathlib import Path

import numpy as np
import pytest
from fakes import config
from gguf import GGUFWriter
from safetensors.numpy import save_file

from flwr_agent import critics
from flwr_agent.critics import find
from flwr_agent.errors import ConfigError, DataError

WIDTH = 8


def folder(path: Path, *names: str, width: int = WIDTH) -> Path:
    """A model folder with tensors of these names."""
    path.mkdir(parents=True)
    save_file(
        {name: np.zeros((1 if "score" in name else 4, width), "f4") for name in names}, path / "model.safetensors"
    )
    (path / "config.json").write_text(json.dumps({"model_type": "llama", "hidden_size": width}))
    return path


def policy_of(path: Path) -> Path:
    return folder(path, "model.embed_tokens.weight", "lm_head.weight")


def critic_of(path: Path, **fields) -> Path:
    return folder(path, "model.embed_tokens.weight", "score.weight", **fields)


def run(policy: Path, critic: object = "auto"):
    return config(
        algorithm__name="ppo", algorithm__group_size=1, model__path=str(policy), model__critic_path=str(critic)
    )


def test_an_explicit_critic_comes_before_the_one_beside_the_policy(tmp_path):
    policy, beside = policy_of(tmp_path / "out" / "actor"), critic_of(tmp_path / "out" / "critic")
    other = critic_of(tmp_path / "other")
    found = find(run(policy, other))
    assert (found.init, found.path) == ("explicit", str(other))
    found = find(run(policy))
    assert (found.init, found.path) == ("auto-sibling", str(beside))


def test_the_critic_in_a_runs_checkpoint_is_the_sibling_of_a_policy_exported_there(tmp_path):
    policy = policy_of(tmp_path / "round-00003" / "actor")
    tensors = {
        "actor/model.embed_tokens.weight": np.zeros((4, WIDTH), "f4"),
        "critic/score.weight": np.zeros((1, WIDTH), "f4"),
    }
    save_file(tensors, policy.parent / "model.safetensors")
    found = find(run(policy))
    assert (found.init, found.path) == ("auto-sibling", str(policy.parent))
    assert list(critics.shapes(policy.parent)) == ["score.weight"]


@pytest.mark.parametrize("beside", [None, "policy", "nothing"])
def test_without_a_trained_critic_the_head_is_fresh(tmp_path, beside):
    policy = policy_of(tmp_path / "out" / "actor")
    if beside == "policy":
        policy_of(tmp_path / "out" / "critic")
    if beside == "nothing":
        (tmp_path / "out" / "critic").mkdir()
    assert find(run(policy)) == critics.Start(init="fresh-value-head")


def test_fresh_leaves_a_trained_sibling_alone(tmp_path):
    policy = policy_of(tmp_path / "out" / "actor")
    critic_of(tmp_path / "out" / "critic")
    assert find(run(policy, "fresh")).init == "fresh-value-head"


@pytest.mark.parametrize("name", ["lm_head.weight", "model.norm.weight"])
def test_a_policy_given_as_critic_is_refused_by_its_tensor_names(tmp_path, name):
    actor = folder(tmp_path / "actor", "model.embed_tokens.weight", name)
    with pytest.raises(ConfigError, match=r"model.critic_path=.*no value head.*this is a policy"):
        find(run(actor, actor))


def test_a_classifier_of_many_labels_is_no_critic(tmp_path):
    path = folder(tmp_path / "ner", "model.embed_tokens.weight")
    save_file({"score.weight": np.zeros((9, WIDTH), "f4")}, path / "model.safetensors")
    with pytest.raises(ConfigError, match="no value head"):
        find(run(policy_of(tmp_path / "actor"), path))


@pytest.mark.parametrize("shape", [(1,), (), (1, WIDTH, 2)])
def test_a_head_that_is_no_matrix_is_no_value_head(tmp_path, shape):
    path = folder(tmp_path / "odd", "model.embed_tokens.weight")
    save_file({"score.weight": np.zeros(shape, "f4")}, path / "model.safetensors")
    with pytest.raises(ConfigError, match="no value head"):
        find(run(policy_of(tmp_path / "actor"), path))


@pytest.mark.parametrize("make", [lambda file: file.symlink_to("gone"), Path.mkdir])
def test_weights_that_cannot_be_read_are_named(tmp_path, make):
    critic = critic_of(tmp_path / "critic")
    (critic / "model.safetensors").unlink()
    make(critic / "model.safetensors")
    with pytest.raises(DataError, match=r"critic/model.safetensors: safetensors header"):
        find(run(policy_of(tmp_path / "x" / "actor"), critic))


def test_a_critic_of_another_width_is_refused(tmp_path):
    critic = critic_of(tmp_path / "critic", width=16)
    with pytest.raises(ConfigError, match="the critic is 16 wide, the policy 8"):
        find(run(policy_of(tmp_path / "x" / "actor"), critic))


def gguf_of(path):
    writer = GGUFWriter(path, "llama")
    writer.add_embedding_length(24)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return path


@pytest.mark.parametrize("kind", ["tiny", "gguf", "hub"])
def test_a_critic_of_another_width_is_refused_before_the_policy_is_there(tmp_path, monkeypatch, kind):
    cached = policy_of(tmp_path / "cache") / "config.json"
    monkeypatch.setattr(
        "huggingface_hub.try_to_load_from_cache", lambda *asked: {("org/name", "config.json"): str(cached)}[asked]
    )
    paths = {"tiny": ("tiny", 96), "gguf": (gguf_of(tmp_path / "small.gguf"), 24), "hub": ("org/name", WIDTH)}
    policy, width = paths[kind]
    with pytest.raises(ConfigError, match=rf"model.critic_path=.*the critic is 16 wide, the policy {width};"):
        find(run(policy, critic_of(tmp_path / "critic", width=16)))
    assert find(run(policy, critic_of(tmp_path / "fitting", width=width))).init == "explicit"


def test_a_hub_policy_that_is_not_here_yet_is_compared_when_it_is(tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.try_to_load_from_cache", lambda *_: None)
    assert find(run("org/name", critic_of(tmp_path / "critic"))).init == "explicit"


def test_a_stray_damaged_file_above_the_policy_does_not_stop_a_run(tmp_path, caplog):
    policy = policy_of(tmp_path / "models" / "actor")
    (policy.parent / "download.safetensors").write_bytes(b"no tensors")
    assert find(run(policy)).init == "fresh-value-head"
    assert "download.safetensors: safetensors header" in caplog.text
    critic = critic_of(policy.parent / "critic")
    assert find(run(policy)).path == str(critic)
    (critic / "model.safetensors").write_bytes(b"no tensors")
    with pytest.raises(DataError, match=r"critic/model.safetensors: safetensors header"):
        find(run(policy))


def test_a_folder_that_is_not_there_or_holds_nothing_is_refused(tmp_path):
    policy = policy_of(tmp_path / "actor")
    with pytest.raises(ConfigError, match="no such folder"):
        find(run(policy, tmp_path / "absent"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match="no weights"):
        find(run(policy, tmp_path / "empty"))


def test_a_damaged_file_is_named(tmp_path):
    critic = critic_of(tmp_path / "critic")
    (critic / "model.safetensors").write_bytes(b"no tensors")
    with pytest.raises(DataError, match=r"model.safetensors: safetensors header"):
        find(run(policy_of(tmp_path / "x" / "actor"), critic))
