"""One real small round of a cell of every arm, and of both baselines, through the command: `make slow`."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from flwr_agent import presets
from flwr_agent.matrix import Cell, cells
from flwr_agent.paths import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]


def chosen() -> dict[str, Cell]:
    """The last cell of each arm with GRPO, which is its most divergent one, and the two baselines; every third with PPO."""
    anchors = [cell for cell in cells() if cell.setting == "main" and not cell.change]
    by_name = {cell.label: cell for cell in anchors if cell.algorithm == "grpo"}
    for setting in ("centralized", "local_client1"):
        by_name[setting] = next(cell for cell in cells() if cell.setting == setting)
    with_ppo = {cell.label: cell for cell in anchors if cell.algorithm == "ppo"}
    return by_name | {label: with_ppo[label] for label in sorted(with_ppo)[::3]}


@pytest.fixture(scope="module")
def policies(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Policies that have seen a few demonstrations of each environment."""
    from flwr_agent.rl import tiny
    from flwr_agent.world import to_adapter

    folders = {}
    for env, name in (("webshop", "webshop"), ("alfworld", "minihouse")):
        folder = tmp_path_factory.mktemp("policy") / env
        adapter = to_adapter(presets.load({"env.name": name}))
        tiny.build(adapter, folder, tiny.Recipe(num_demos=64, num_steps=20), history=2)
        folders[env] = folder
    return folders


@pytest.mark.parametrize("name", sorted(chosen()))
def test_a_small_round_of_a_cell_ends_complete(name: str, policies: dict[str, Path], tmp_path: Path):
    cell = chosen()[name]
    command = [sys.executable, "-m", "flwr_agent", "matrix", "--run", cell.path, "--scale", "small"]
    settings = [f"model.path={policies[cell.env]}", f"output_dir={tmp_path / 'run'}"]
    environment = {"PYTHONPATH": str(ROOT), "HOME": str(tmp_path), "PATH": os.environ["PATH"]}  # noqa: TID251
    done = subprocess.run(
        [*command, *settings], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    summary = json.loads((tmp_path / "run" / "federated_summary.json").read_text())
    assert summary["loop_completed"] is True
    assert [point["round"] for point in summary["val_curve"]] == [0, 1]
    assert summary["partition_strategy"] == cell.arm.strategy
    assert summary["total_clients"] == cell.shape.total_clients
    assert len(summary["rounds"][0]["clients"]) == cell.shape.clients_per_round


def test_sixteen_runs_cover_every_arm_and_both_baselines():
    assert len(chosen()) == 16
