"""From cells to configurations, at both scales and through the command."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

import strategies
from flwr_agent import presets, validate
from flwr_agent.cli.app import app
from flwr_agent.cli.matrix import to_plan
from flwr_agent.cli.parts import Parts
from flwr_agent.config import RunConfig, resolve
from flwr_agent.errors import ConfigError
from flwr_agent.matrix import Cell, cells, find, to_flat

MAIN = "Qwen2.5-1.5B-Instruct/main/grpo/fed_webshop"
PARTS = Parts(
    load_strategy=strategies.load,
    load_model=lambda run, _: pytest.fail(str(run)),
    rebuild=lambda run: pytest.fail(str(run)),
)


def loaded(cell: Cell, folder: Path, scale: str = "paper") -> RunConfig:
    """A cell's configuration, checked as far as no environment has to be opened."""
    flat = to_flat(cell, scale)
    config = presets.build(presets.Layers(name=cell.name, flat=flat, sources={}), base=folder)
    validate.check(config, flat, load_strategy=strategies.load)
    return config


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    return tmp_path


def command(*arguments: str) -> str:
    done = CliRunner().invoke(app, ["matrix", *arguments], obj=PARTS, catch_exceptions=False)
    assert done.exit_code == 0
    return done.stdout


@pytest.mark.parametrize("scale", ["paper", "small"])
def test_all_cells_load_and_validate(tmp_path: Path, scale: str):
    configs = [loaded(cell, tmp_path, scale) for cell in cells()]
    assert len(configs) == 194


def test_no_two_cells_are_the_same_experiment(tmp_path: Path):
    marks = [cell for cell in cells() if cell.label != "task_disjoint"]
    assert len({loaded(cell, tmp_path).fingerprint() for cell in marks}) == len(marks)


def test_the_anchor_is_the_published_recipe():
    config = resolve(to_flat(find(MAIN)))
    preset = presets.load({"preset": "paper-webshop-grpo"})
    assert replace(config, output_dir="") == replace(preset, output_dir="")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("main_seed1/grpo/fed_webshop", {"seed": 21}),
        ("main_seed2/grpo/fed_webshop", {"seed": 84}),
        (
            "centralized/grpo/fed_webshop",
            {"federation.mode": "centralized", "federation.rounds": 1, "federation.epochs_per_round": 210},
        ),
        (
            "local_client3/grpo/fed_webshop",
            {"federation.mode": "local", "federation.local_client": 84, "federation.total_clients": 100},
        ),
    ],
)
def test_a_setting_says_the_seed_or_the_baseline(text: str, expected: dict):
    config = resolve(to_flat(find(f"Qwen2.5-3B-Instruct/{text}"))).flat()
    assert {key: config[key] for key in expected} == expected
    assert config["model.path"] == "Qwen/Qwen2.5-3B-Instruct"


def test_ppo_rolls_out_as_many_episodes_a_step_as_grpo():
    grpo, ppo = (resolve(to_flat(find(f"Qwen2.5-3B-Instruct/main/{name}/fed_alfworld"))) for name in ("grpo", "ppo"))
    assert grpo.trainer.tasks_per_step * grpo.algorithm.group_size == ppo.trainer.tasks_per_step == 64


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ppo/webshop/catalog_split", {"strategy": "catalog_split", "env_div": 1.0, "keep_ratio": 0.7}),
        ("ppo/webshop/field_subset_index", {"strategy": "bm25_field_subset", "variant_n": 4}),
        ("ppo/alfworld/scene_disjoint", {"strategy": "scene_disjoint", "env_div": 1.0, "scenes_per_client": 8}),
    ],
)
def test_an_arm_s_values_reach_its_knobs(text: str, expected: dict):
    config = resolve(to_flat(find(text))).flat()
    assert {name: config[f"partition.{name}"] for name in expected} == expected


def test_worlds_that_differ_search_deeper_and_held_out_tasks_do_not():
    for cell in cells():
        env = resolve(to_flat(cell)).env
        assert env.val_search_return_n == 50
        assert env.search_return_n == (200 if cell.env == "webshop" and cell.family == "env_heterogeneity" else 50)


def test_a_written_cell_is_a_preset(tmp_path: Path):
    assert command("--write", str(tmp_path)) == f"194 presets in {tmp_path}\n"
    files = sorted(tmp_path.rglob("*.yaml"))
    assert len(files) == 194
    cell = Cell.parse(files[-1].relative_to(tmp_path).as_posix())
    config = presets.load({"preset": str(files[-1])}, base=tmp_path)
    assert replace(config, output_dir="auto") == resolve(to_flat(cell))


def test_the_command_lists_and_shows():
    lines = command("--list").splitlines()
    assert len(lines) == 195
    assert lines[-1].startswith("# 194 cells: uniform 112")
    shown = yaml.safe_load(command("--show", MAIN, "seed=7"))
    assert (shown["seed"], shown["trainer.lr"]) == (7, 1e-6)


def test_the_command_asks_what_to_do_and_refuses_other_scales():
    with pytest.raises(ConfigError, match="say one thing to do"):
        command()
    with pytest.raises(ConfigError, match="--scale='tiny': no such scale"):
        command("--list", "--scale", "tiny")


def test_a_small_hardness_cell_brings_labels_that_say_what_they_are(home: Path):
    plan = to_plan(
        find(
            "task_heterogeneity/grpo/alfworld/fed_alfworld_grpo_total-100_cl-per-rd-2_rd-70_ep-per-cl-3_min-goals-per-cl-100_p-hardness_success_std-256"
        ),
        "small",
        {"federation.total_clients": 4},
        base=home,
        load_strategy=strategies.load,
    )
    labels = json.loads(Path(plan.config.partition.trajectories_file).read_text())
    assert labels["metadata"]["source"].startswith("drawn at random")
    assert len(labels["trajectories"]) == 3600


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_all_cells_pass_a_small_dry_run(home: Path):
    """Every client's shard is cut and its world opened, once for each federation that the cells describe."""
    seen = set()
    for cell in cells():
        config = loaded(cell, home, "small")
        federation = repr((config.env, config.partition, config.federation.total_clients, config.federation.mode))
        if federation not in seen:
            to_plan(cell, "small", {}, base=home, load_strategy=strategies.load)
            seen.add(federation)
    assert len(seen) > 40
