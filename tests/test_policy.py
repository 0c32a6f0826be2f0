import json
import sys
from pathlib import Path

import pytest

from flwr_agent.config import resolve
from flwr_agent.errors import ConfigError, DataError
from flwr_agent.policy import check_model, check_policy
from flwr_agent.rl.gguf import ensure

FILES = {
    "config.json": json.dumps({"model_type": "llama"}),
    "tokenizer.json": "{}",
    "tokenizer_config.json": json.dumps({"chat_template": "{{ messages }}"}),
    "model.safetensors": "",
}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def test_a_complete_model_folder_passes(model: Path):
    check_model(str(model))


@pytest.mark.parametrize("path", ["tiny", "gpt2", "Qwen/Qwen2.5-1.5B-Instruct"])
def test_what_cannot_be_checked_offline_passes(path: str):
    check_model(path)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("config.json", "no config.json"),
        ("tokenizer.json", "no tokenizer"),
        ("tokenizer_config.json", "no tokenizer_config.json"),
        ("model.safetensors", "no weights"),
    ],
)
def test_each_missing_file_is_named(model: Path, name: str, message: str):
    (model / name).unlink()
    with pytest.raises(ConfigError, match=message):
        check_model(str(model))


def test_a_chat_template_may_stand_in_a_file_of_its_own(model: Path):
    (model / "tokenizer_config.json").write_text("{}")
    with pytest.raises(ConfigError, match="no chat template"):
        check_model(str(model))
    (model / "chat_template.jinja").write_text("{{ messages }}")
    check_model(str(model))


@pytest.mark.parametrize(
    ("text", "message"), [("{", "JSON: malformed"), ("[]", "must be an object"), ("{}", "model_type")]
)
def test_a_malformed_config_names_the_file(model: Path, text: str, message: str):
    (model / "config.json").write_text(text)
    with pytest.raises(DataError, match=rf"config.json: .*{message}"):
        check_model(str(model))


@pytest.mark.parametrize("path", ["./absent", "/absent/model", "~/absent", "a/b/c"])
def test_an_absent_folder_is_refused(path: str):
    with pytest.raises(ConfigError, match="no such folder"):
        check_model(path)


RANKS = {"trainer.deepspeed": "zero2", "trainer.ranks": 2, "worker.gpus": 2.0, "worker.python": sys.executable}


@pytest.mark.parametrize(
    ("keys", "key", "reason"),
    [
        (
            {"trainer.tasks_per_step": 3, "algorithm.group_size": 3},
            "trainer.ranks",
            "does not divide trainer.tasks_per_step x algorithm.group_size = 9; choose",
        ),
        ({"trainer.minibatch_rows": 33}, "trainer.ranks", "does not divide trainer.minibatch_rows=33"),
        ({"trainer.deepspeed": "none"}, "trainer.ranks", "several ranks need trainer.deepspeed"),
        ({"worker.gpus": 1.0}, "trainer.ranks", "set worker.gpus=2 too"),
        ({"trainer.deepspeed": "zero3", "model.lora.rank": 4}, "trainer.deepspeed", "use zero1 or zero2"),
        (
            {"trainer.deepspeed": "zero3", "algorithm.name": "ppo", "algorithm.group_size": 1},
            "trainer.deepspeed",
            "ppo trains two; use zero1 or zero2",
        ),
        ({"model.lora.client_ranks": "8,4"}, "model.lora.client_ranks", "set model.lora.rank"),
        ({"strategy.name": "lora_average"}, "model.lora.rank", "averages LoRA adapters; set a rank"),
    ],
)
def test_a_group_or_an_adapter_that_cannot_be_is_refused(keys: dict[str, object], key: str, reason: str):
    with pytest.raises(ConfigError, match=reason) as caught:
        check_policy(resolve(RANKS, keys))
    assert caught.value.key == key
    check_policy(resolve(RANKS))


def test_an_unknown_stage_names_those_there_are():
    with pytest.raises(
        ConfigError, match=r"zero4.*allowed: none, zero1, zero1-offload, zero2, .*did you mean"
    ) as caught:
        resolve({"trainer.deepspeed": "zero4"})
    assert caught.value.key == "trainer.deepspeed"


def test_a_gguf_file_is_looked_at(tmp_path: Path):
    file = tmp_path / "model.gguf"
    with pytest.raises(ConfigError, match="no such GGUF"):
        check_model(str(file))
    file.write_bytes(b"PK\x03\x04")
    with pytest.raises(ConfigError, match="not a GGUF file"):
        check_model(str(file))
    (tmp_path / "folder.gguf").mkdir()
    with pytest.raises(ConfigError, match="is a folder whose name ends like a GGUF"):
        check_model(str(tmp_path / "folder.gguf"))


def test_a_gguf_that_ends_too_soon_is_named(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    file = tmp_path / "model.gguf"
    file.write_bytes(b"GGUF\0\0\0")
    with pytest.raises(ConfigError, match=rf"model.path='{file}': this GGUF cannot be read"):
        ensure(file)


def test_a_config_that_nests_too_deeply_is_named(model: Path):
    (model / "config.json").write_text("[" * 100_000)
    with pytest.raises(DataError, match=r"config.json"):
        check_model(str(model))


def test_quantised_weights_are_refused(model: Path):
    (model / "config.json").write_text(json.dumps({"model_type": "llama", "quantization_config": {"bits": 4}}))
    with pytest.raises(ConfigError, match="quantised"):
        check_model(str(model))
