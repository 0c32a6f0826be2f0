"""Model folders that cannot be a policy are refused by `model.path`, with what to do."""

import http.server
import json
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from fakes import config
from policies import random_rows, save_policy
from safetensors.torch import load_file, save_file

from flwr_agent.errors import AgentError, ConfigError
from flwr_agent.policy import check_hub
from flwr_agent.rl.batch import to_batch
from flwr_agent.rl.model import load_policy, load_tokenizer
from flwr_agent.rl.trainer import Trainer
from flwr_agent.rl.weights import to_arrays


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


def foreign_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").write_text('{"version": "1.0", "model": {"type": "nobody-knows"}}')


def torn_template(folder: Path) -> None:
    (folder / "chat_template.jinja").write_text("{% for m in messages %}{{ m['content'] }}")


def empty_template(folder: Path) -> None:
    (folder / "chat_template.jinja").write_text("{% if false %}x{% endif %}")


def words_for_numbers(folder: Path) -> None:
    edit(folder, hidden_size="wide")


def no_heads(folder: Path) -> None:
    edit(folder, num_attention_heads=0)


def layers_of_nothing(folder: Path) -> None:
    edit(folder, num_hidden_layers=None)


def no_safetensors(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"\xff" * 200)


def lost_shard(folder: Path) -> None:
    index = {"metadata": {}, "weight_map": {"model.norm.weight": "model-00001-of-00002.safetensors"}}
    (folder / "model.safetensors").rename(folder / "model-00002-of-00002.safetensors")
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def quantised(folder: Path) -> None:
    edit(folder, quantization_config={"quant_method": "awq", "bits": 4})


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
        (foreign_tokenizer, load_tokenizer, "no tokenizer could be loaded"),
        (torn_template, load_tokenizer, "no tokenizer could be loaded"),
        (empty_template, load_tokenizer, "writes nothing"),
        (words_for_numbers, load_policy, "no causal LM could be loaded"),
        (no_heads, load_policy, "no causal LM could be loaded"),
        (layers_of_nothing, load_policy, "no causal LM could be loaded"),
        (no_safetensors, load_policy, "no causal LM could be loaded"),
        (lost_shard, load_policy, "no causal LM could be loaded"),
        (quantised, load_policy, "quantised, which cannot be trained"),
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


def test_an_attention_that_is_not_installed_is_named(whole: Path):
    with pytest.raises(ConfigError, match="use sdpa or eager") as caught:
        load_policy(config(model__path=str(whole), model__attention="flash_attention_2"))
    assert caught.value.key == "model.attention"
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_any_attention_gives_the_same_scores(whole: Path, attention: str):
    ids = torch.arange(4, 30)[None]
    model = load_policy(config(model__path=str(whole), model__attention=attention))
    expected = load_policy(config(model__path=str(whole)))
    assert model.config._attn_implementation == attention
    with torch.no_grad():
        torch.testing.assert_close(model(ids).logits, expected(ids).logits, rtol=1e-4, atol=1e-4)


def test_an_id_that_no_hub_has_is_one_line(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    for path in ("nobody/no-such-model", "no-such-model"):
        with pytest.raises(ConfigError, match="check the id, or give a folder") as caught:
            check_hub(path)
        assert len(str(caught.value).splitlines()) == 1
        assert "the Hugging Face hub cannot be reached" in str(caught.value)


class Unknowing(http.server.BaseHTTPRequestHandler):
    """A hub that knows no model."""

    def do_HEAD(self):
        self.send_response(404)
        self.send_header("X-Error-Code", "RepoNotFound")
        self.end_headers()

    def log_message(self, *_):
        pass


@pytest.mark.parametrize("is_there", [False, True])
def test_an_id_is_asked_for_once(monkeypatch: pytest.MonkeyPatch, is_there: bool):
    """Also where nothing answers: a download would try again for half a minute before it says so."""
    with http.server.HTTPServer(("127.0.0.1", 0), Unknowing) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        place = f"http://127.0.0.1:{server.server_port if is_there else 9}"
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", place)
        monkeypatch.setattr(
            "huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE", place + "/{repo_id}/resolve/{revision}/{filename}"
        )
        start = time.monotonic()
        with pytest.raises(ConfigError, match="has no such model for you" if is_there else "hub cannot be reached"):
            load_policy(config(model__path="nobody/no-such-model"))
        assert time.monotonic() - start < 10
        server.shutdown()
        thread.join()


def test_forwards_in_bfloat16_train_masters_in_fp32(whole: Path):
    """Law 39: what a round boundary carries is fp32, so that a step below bfloat16's resolution is not lost."""
    run = config(model__path=str(whole), env__name="tinyguess", model__compute_dtype="bfloat16", trainer__lr=1e-6)
    trainer = Trainer.load(run)
    first = to_arrays(trainer.model)
    trainer.begin_round(first)
    trainer.train(random_rows(6), seed=0)
    moved = trainer.weights()
    assert {values.dtype for values in moved.values()} == {np.dtype("f4")}
    lost = [
        torch.tensor(v).bfloat16() == torch.tensor(first[n]).bfloat16()
        for n, v in moved.items()
        if (v != first[n]).any()
    ]
    assert torch.cat([same.flatten() for same in lost]).float().mean() > 0.5
    batch = to_batch(random_rows(4), pad_id=0, num_tokens=1, device="cpu")
    wide = Trainer.load(config(model__path=str(whole), env__name="tinyguess"))
    found, exact = (one.seam.score(one.model, batch) for one in (trainer, wide))
    assert found.dtype == torch.float32
    assert 1e-4 < (found - exact).abs().max() < 0.2
