"""What a run says of privacy: before it starts, round by round, and when its budget is spent."""

import json

import pytest
from fakes import InMemoryGrid, client, config, model

from flwr_agent.accountant import epsilon
from flwr_agent.arrays import digest, load
from flwr_agent.cli import preview
from flwr_agent.errors import BudgetError
from flwr_agent.requests import InitialModel
from server_app.run import run
from strategies.privacy import KEY_FILE

pytestmark = pytest.mark.usefixtures("task_identity")
DP = {"privacy__noise_multiplier": 2.0, "privacy__clip": 0.5}


def play(folder, **keys):
    fixed = {"output_dir": str(folder), "federation__rounds": 3, "evaluation__where": "off"}
    start = InitialModel(arrays=model(), base_digest=digest(model()))
    run(config(**fixed | keys), InMemoryGrid(client()), initial_model=lambda _: start, serve=pytest.fail)
    return digest(load(folder / "round-00003" / "model.safetensors"))


def rounds(folder):
    lines = [json.loads(line) for line in (folder / "ledger.jsonl").read_text().splitlines()]
    return [line for line in lines if line["kind"] == "round"]


def test_the_manifest_is_in_the_folder_before_the_first_request(tmp_path):
    seen = []

    def serve(message):
        seen.append((tmp_path / "manifest.txt").read_text().splitlines())
        return client()(message)

    start = InitialModel(arrays=model(), base_digest=digest(model()))
    keys = {"output_dir": str(tmp_path), "evaluation__where": "off", "federation__rounds": 1}
    run(config(**keys), InMemoryGrid(serve), initial_model=lambda _: start, serve=pytest.fail)
    assert seen[0][0].startswith("a training reply holds 3 arrays (496 bytes)")
    assert "array actor/embed: float32, 176 bytes" in seen[0]


@pytest.mark.parametrize(("where", "listed"), [("client", True), ("off", False)])
def test_evaluations_that_cross_the_wire_are_in_the_manifest(tmp_path, where, listed):
    start = InitialModel(arrays=model(), base_digest=digest(model()))
    keys = {"output_dir": str(tmp_path), "evaluation__where": where, "federation__rounds": 1, "evaluation__tasks": 7}
    run(config(**keys), InMemoryGrid(client()), initial_model=lambda _: start, serve=pytest.fail)
    said = (tmp_path / "manifest.txt").read_text()
    assert ("a reply to an evaluation holds, for each of at most 7 held-out tasks" in said) is listed


def test_the_spend_is_in_the_ledger_and_announced_with_what_it_covers(tmp_path):
    play(tmp_path, **DP)
    spent = [line["privacy"] for line in rounds(tmp_path)]
    assert spent == [{"epsilon": epsilon(2.0, n, 1e-5), "delta": 1e-5} for n in (1, 2, 3)]
    said = (tmp_path / "manifest.txt").read_text().splitlines()[1]
    assert said.startswith(f"the weights alone are private: epsilon {spent[-1]['epsilon']:.3g} at delta 1e-05")


def test_a_run_without_noise_spends_nothing_and_keeps_no_secret(tmp_path):
    play(tmp_path)
    assert [line["privacy"] for line in rounds(tmp_path)] == [{}, {}, {}]
    assert not (tmp_path / KEY_FILE).exists()


def test_a_run_whose_budget_is_spent_ends_early_and_goes_on_with_a_larger_one(tmp_path):
    budget = (epsilon(2.0, 2, 1e-5) + epsilon(2.0, 3, 1e-5)) / 2
    with pytest.raises(BudgetError, match="round 3 would spend"):
        play(tmp_path, **DP, privacy__budget=budget)
    assert not json.loads((tmp_path / "federated_summary.json").read_text())["loop_completed"]
    assert [line["round"] for line in rounds(tmp_path)] == [1, 2]
    play(tmp_path, **DP)
    assert [line["round"] for line in rounds(tmp_path)] == [1, 2, 3]


def test_the_spend_is_known_before_the_run():
    table = preview.estimate(config(**DP), None)
    cells = list(zip(*(column.cells for column in table.columns), strict=True))
    assert ("privacy spent", f"epsilon {epsilon(2.0, 8, 1e-5):.3g}") in [cell[:2] for cell in cells]
