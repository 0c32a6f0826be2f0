import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from safetensors.numpy import save_file

from flwr_agent import presets
from flwr_agent.cli import preview


def text_of(table) -> str:
    out = io.StringIO()
    Console(file=out, width=250).print(table)
    return out.getvalue()


def test_parameters_are_counted_from_the_headers_of_all_files(tmp_path: Path):
    save_file({"a": np.zeros((3, 4), np.float32), "b": np.zeros(5, np.float32)}, tmp_path / "1.safetensors")
    save_file({"c": np.zeros((2, 2, 2), np.float16)}, tmp_path / "2.safetensors")
    assert preview.size_of(str(tmp_path)).parameters == 25


@pytest.mark.parametrize(
    ("path", "parameters"),
    [("Qwen/Qwen2.5-1.5B-Instruct", 1_500_000_000), ("org/small-135M", 135_000_000), ("tiny", None), ("a/b2", None)],
)
def test_a_model_that_is_not_here_has_the_size_in_its_name(path: str, parameters: int | None):
    size = preview.size_of(path)
    assert (size and size.parameters) == parameters


def test_paper_round_is_the_published_arithmetic(tmp_path: Path):
    config = presets.load({"preset": "paper-webshop-grpo"}, base=tmp_path)
    text = text_of(preview.estimate(config, preview.Size(parameters=1_543_714_304, source="counted")))
    for figure in ("6.17 GB", "24.7 GB", "384", "5,760"):
        assert figure in text


def test_without_a_kl_term_no_base_model_is_held(tmp_path: Path):
    config = presets.load({}, base=tmp_path)
    with_kl, without = (replace(config, algorithm=replace(config.algorithm, kl_coef=coef)) for coef in (0.01, 0.0))
    size = preview.Size(parameters=250_000, source="counted")
    assert "6 MB" in text_of(preview.estimate(with_kl, size))
    assert "5 MB" in text_of(preview.estimate(without, size))


def test_a_critic_is_held_and_sent_as_a_second_model(tmp_path: Path):
    config = presets.load({"preset": "ppo"}, base=tmp_path)
    text = text_of(preview.estimate(config, preview.Size(parameters=250_000, source="counted")))
    assert "10 MB" in text  # 10 copies at a client
    assert text.count("8 MB") == 2  # 4 pairs at the server, 4 pairs on the way


def test_settings_are_a_preset_that_gives_the_same_run(tmp_path: Path):
    config = presets.load({"seed": 7, "env.name": "tinyguess"}, base=tmp_path)
    text = preview.settings(config, frozenset({"seed"}))
    assert "seed: 7  # set" in text.splitlines()
    assert text.count("# set") == 1
    (tmp_path / "shown.yaml").write_text(text, encoding="utf-8")
    assert presets.load({"preset": str(tmp_path / "shown.yaml")}) == config


@pytest.mark.parametrize(("budget", "said"), [(0.001, "0 of 8"), (10.0, "3 of 8"), (0.0, None), (100.0, None)])
def test_rounds_that_the_privacy_budget_leaves_no_room_for_are_said(tmp_path: Path, budget: float, said: str | None):
    config = presets.load({"privacy.noise_multiplier": 1.0, "privacy.budget": budget}, base=tmp_path)
    text = text_of(preview.estimate(config, None))
    assert "epsilon" in text
    assert ("rounds in budget" in text) is (said is not None)
    assert said is None or said in text


def test_a_damaged_ledger_that_is_to_be_archived_is_not_read(tmp_path: Path):
    (tmp_path / "ledger.jsonl").write_text("x\n")
    config = presets.load({"fresh": True, "output_dir": str(tmp_path)}, base=tmp_path)
    assert "TFLOP" in text_of(preview.estimate(config, preview.Size(parameters=250_000, source="counted")))
