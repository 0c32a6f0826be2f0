import json
from pathlib import Path

import pytest

from flwr_agent.errors import ConfigError, DataError
from flwr_agent.policy import check_model

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
