"""The tools on run folders, through the real command line."""

import json

import numpy as np
import pytest
from ledgers import run_folder
from safetensors.numpy import save_file
from typer.testing import CliRunner

from flwr_agent.cli.app import app
from flwr_agent.cli.parts import Parts
from flwr_agent.cli.tools import by_type
from flwr_agent.compare import compare
from flwr_agent.errors import DataError
from flwr_agent.requests import EvaluateReply
from server_app.rebuild import rebuild

PARTS = Parts(load_strategy=lambda _: pytest.fail("asked"), load_model=lambda *_: pytest.fail("asked"), rebuild=rebuild)


@pytest.fixture
def models(tmp_path):
    base = {"actor/w": np.float32([[3.0, 4.0]]), "actor/b": np.array(1.0, np.float32)}
    moved = base | {"actor/w": np.float32([[3.0, 4.5]])}
    other = {"actor/w": np.float32([3.0, 4.0]), "actor/c": np.array(1.0, np.float32)}
    for name, arrays in {"base": base, "same": base, "moved": moved, "other": other}.items():
        (tmp_path / name / "round-00001").mkdir(parents=True)
        save_file(arrays, tmp_path / name / "round-00001" / "model.safetensors")
    return tmp_path


def command(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)), obj=PARTS, catch_exceptions=False)


def test_a_model_equals_itself(models):
    done = command("compare", models / "base", models / "same" / "round-00001" / "model.safetensors")
    assert done.exit_code == 0
    assert done.stdout == "2 tensors, 0 further apart than 0; largest relative distance 0, max |Δ| 0\n"


def test_the_distance_is_relative_to_the_first_and_decides_the_exit_code(models):
    (scale, weight) = compare(models / "base", models / "moved")
    assert (scale.relative, scale.largest) == (0.0, 0.0)
    assert (weight.relative, weight.largest) == (0.1, 0.5)
    done = command("compare", models / "base", models / "moved", "--tolerance", "0.09")
    assert done.exit_code == 1
    assert "actor/w" in done.stdout
    assert command("compare", models / "base", models / "moved", "--tolerance", "0.1").exit_code == 0


def test_another_structure_is_never_within_a_tolerance(models):
    found = {one.name: one.problem for one in compare(models / "base", models / "other")}
    assert found == {"actor/b": "only in the first", "actor/c": "only in the second", "actor/w": "(1, 2) against (2,)"}
    done = command("compare", models / "base", models / "other", "--tolerance", "1e9")
    assert done.exit_code == 1


def test_a_value_that_is_not_finite_is_never_within_a_tolerance(tmp_path):
    for name, value in (("a", np.nan), ("b", np.nan)):
        save_file({"w": np.float32([value])}, tmp_path / f"{name}.safetensors")
    (only,) = compare(tmp_path / "a.safetensors", tmp_path / "b.safetensors")
    assert (only.problem, only.is_within(1.0)) == ("not finite", False)


def test_bfloat16_is_read_where_torch_is(tmp_path):
    torch, save = pytest.importorskip("torch"), pytest.importorskip("safetensors.torch").save_file
    save({"w": torch.tensor([1.0, 2.0], dtype=torch.bfloat16)}, tmp_path / "half.safetensors")
    save({"w": torch.tensor([1.0, 2.0])}, tmp_path / "full.safetensors")
    assert compare(tmp_path / "half.safetensors", tmp_path / "full.safetensors")[0].relative == 0.0


@pytest.mark.parametrize(
    ("name", "message"), [("absent", "no \\*.safetensors there"), ("torn.safetensors", "cannot be read")]
)
def test_what_is_no_model_is_refused(models, name, message):
    (models / "torn.safetensors").write_bytes(b"\x01")
    with pytest.raises(DataError, match=message):
        compare(models / "base", models / name)


def test_a_summary_is_rebuilt_from_the_ledger_alone(tmp_path):
    folder = run_folder(tmp_path / "run", federation__rounds=2)
    done = command("rebuild-summary", folder)
    assert done.stdout.split() == [str(folder / "federated_summary.json"), str(folder / "report.html")]
    summary = json.loads((folder / "federated_summary.json").read_text())
    assert [point["success_rate"] for point in summary["val_curve"]] == [0.25, 0.5, 0.75]
    assert summary["loop_completed"] is True
    assert len(list(folder.glob("round_*/client_*/json_logs/metrics.json"))) == 4


def test_rebuilding_needs_a_run_and_makes_no_ledger(tmp_path):
    with pytest.raises(DataError, match="give the folder of a run"):
        rebuild(tmp_path)
    folder = run_folder(tmp_path / "run")
    (folder / "ledger.jsonl").write_bytes(b"")
    with pytest.raises(DataError, match="does not open a ledger"):
        rebuild(folder)
    assert (folder / "ledger.jsonl").read_bytes() == b""
    assert not (folder / "federated_summary.json").exists()
    (folder / "ledger.jsonl").unlink()
    with pytest.raises(DataError, match="is missing"):
        rebuild(folder)
    assert not (folder / "ledger.jsonl").exists()


def test_rows_by_type_add_up_to_all():
    outcomes = {"sampled/success": (1.0, 0.0, 1.0), "greedy/success": (0.0, 0.0, 1.0), "greedy/task_score": (0.5,) * 3}
    reply = EvaluateReply(round=1, outcomes=outcomes, tasks=("a", "b", "c"), types=("x", "y", "x"))
    rows = [(kind, count, *(cell.split(" ")[0] for cell in cells)) for kind, count, *cells in by_type(reply)]
    assert rows == [("x", "2", "2/2", "1/2"), ("y", "1", "0/1", "0/1"), ("All", "3", "2/3", "1/3")]
