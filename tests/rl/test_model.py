"""Model folders that cannot be a policy are refused by `model.path`, with what to do."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from fakes import config
from policies import save_policy
from safetensors.torch import load_file, save_file

from flwr_agent.errors import AgentError, ConfigError
from flwr_agent.rl.model import load_policy, load_tokenizer


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("policy") / "whole"
    save_policy(folder)
    return folder


def no_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()


def no_template(folder: Path) -> None:
    (folder / "chat_template.jinja").unlink()


def no_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()


def torn_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").write_text("{")


def torn_weights(folder: Path) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:5000])


def a_weight_less(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    del weights["model.norm.weight"]
    save_file(weights, folder / "model.safetensors", {"format": "pt"})


def another_kind(folder: Path) -> None:
    edit(folder, model_type="bert")


def another_size(folder: Path) -> None:
    edit(folder, vocab_size=9)


def unknown_kind(folder: Path) -> None:
    edit(folder, model_type="nobody-knows")


def edit(folder: Path, **values: object) -> None:
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | values))


@pytest.mark.parametrize(
    ("spoil", "load", "reason"),
    [
        (no_tokenizer, load_tokenizer, "no tokenizer; save it there"),
        (no_template, load_tokenizer, "no chat template; use an instruct model"),
        (torn_tokenizer, load_tokenizer, "no tokenizer could be loaded"),
        (no_weights, load_policy, "no weights"),
        (torn_weights, load_policy, "no causal LM could be loaded"),
        (a_weight_less, load_policy, "lack 1 weights of LlamaForCausalLM, first 'model.norm.weight'"),
        (another_kind, load_policy, "weights of BertLMHeadModel"),
        (another_size, load_policy, "no causal LM could be loaded"),
        (unknown_kind, load_policy, "no causal LM could be loaded"),
    ],
)
def test_a_folder_that_lacks_something_is_refused(
    spoil: Callable[[Path], None], load: Callable[..., object], reason: str, whole: Path, tmp_path: Path
):
    folder = tmp_path / "spoilt"
    shutil.copytree(whole, folder)
    spoil(folder)
    with pytest.raises(ConfigError) as caught:
        load(config(model__path=str(folder)))
    assert caught.value.key == "model.path"
    assert str(folder) in str(caught.value)
    assert reason in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize("path", ["/nowhere/model", "./nowhere", "~/nowhere"])
@pytest.mark.parametrize("load", [load_tokenizer, load_policy])
def test_a_folder_that_is_not_there_is_not_looked_for_elsewhere(path: str, load: Callable[..., object]):
    with pytest.raises(AgentError, match="no such folder"):
        load(config(model__path=path))


def test_a_policy_is_whole_fp32_and_padded_at_the_left(whole: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HOME", str(whole.parent))
    before = torch.get_rng_state()
    model = load_policy(config(model__path="~/whole"))
    saved = load_file(whole / "model.safetensors")
    assert torch.equal(torch.get_rng_state(), before)
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    assert all(torch.equal(p.cpu(), saved[name]) for name, p in model.named_parameters())
    tokenizer = load_tokenizer(config(model__path="~/whole"))
    assert (tokenizer.padding_side, tokenizer.truncation_side) == ("left", "left")
