import io
from dataclasses import replace
from pathlib import Path

import numpy as np
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
    assert preview.count_parameters(str(tmp_path)) == 25
    assert preview.count_parameters(str(tmp_path / "absent")) is None


def test_paper_round_is_the_published_arithmetic(tmp_path: Path):
    config = presets.load({"preset": "paper-webshop-grpo"}, base=tmp_path)
    text = text_of(preview.estimate(config, 1_543_714_304))
    for figure in ("6.17 GB", "24.7 GB", "384", "5,760"):
        assert figure in text


def test_without_a_kl_term_no_base_model_is_held(tmp_path: Path):
    config = presets.load({}, base=tmp_path)
    without = replace(config, algorithm=replace(config.algorithm, kl_coef=0.0))
    assert "6 MB" in text_of(preview.estimate(config, 250_000))
    assert "5 MB" in text_of(preview.estimate(without, 250_000))


def test_settings_mark_what_was_set(tmp_path: Path):
    text = text_of(preview.settings(presets.load({"seed": 7}, base=tmp_path), frozenset({"seed"})))
    marked = [line for line in text.splitlines() if "yes" in line]
    assert len(marked) == 1
    assert "seed" in marked[0]
