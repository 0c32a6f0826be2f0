"""Real runs through the real command: Flower's processes, two clients, a policy trained for twenty steps.

All of them play the same two rounds of TinyGuess, so that they can be compared bit for bit.
"""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from flwr_agent import presets
from flwr_agent.paths import ROOT

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1000)]
TIMEOUT_S = 900
SETTINGS = ("--preset", "tinyguess", "federation.rounds=2", "evaluation.tasks=4")


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a policy that has seen a few demonstrations."""
    from flwr_agent.rl import tiny
    from flwr_agent.world import to_adapter

    folder = tmp_path_factory.mktemp("policy") / "model"
    adapter = to_adapter(presets.load({"preset": "tinyguess"}))
    tiny.build(adapter, folder, tiny.Recipe(num_demos=64, num_steps=20), history=2)
    return folder


@pytest.fixture(scope="module")
def start(policy: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., subprocess.Popen[str]]:
    """Start a run whose folder is `output`."""
    home = tmp_path_factory.mktemp("cwd")

    def popen(output: Path, *arguments: str, cwd: Path = home) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "flwr_agent", "run", *SETTINGS, f"model.path={policy}", f"output_dir={output}"]
        env = {"PYTHONPATH": str(ROOT), "HOME": str(home), "PATH": "/usr/bin:/bin"}
        return subprocess.Popen(
            [*command, *arguments], cwd=cwd, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    return popen


@pytest.fixture(scope="module")
def finished(start, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Folder and output of an undisturbed run in simulation."""
    folder = tmp_path_factory.mktemp("runs") / "whole"
    process = start(folder)
    out, err = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0, err + (folder / "logs" / "run.log").read_text()
    return folder, out


def lines(folder: Path, kind: str) -> list[dict]:
    ledger = folder / "ledger.jsonl"
    whole = ledger.read_bytes().rpartition(b"\n")[0] if ledger.is_file() else b""
    return [line for line in map(json.loads, whole.splitlines()) if line["kind"] == kind]


def wait_for(folder: Path, kind: str) -> None:
    end = time.monotonic() + TIMEOUT_S
    while not lines(folder, kind):
        assert time.monotonic() < end, f"no {kind} line in {folder}"
        time.sleep(0.02)


def digests(folder: Path) -> list[tuple[int, str]]:
    return [(line["round"], line["digest"]) for line in lines(folder, "round")]


def test_a_run_ends_with_its_scores_and_where_they_are(finished):
    folder, out = finished
    accepted = [(line["round"], line["client_id"]) for line in lines(folder, "client") if line["status"] == "accepted"]
    assert accepted == [(1, 0), (1, 1), (2, 0), (2, 1)]
    assert [line["round"] for line in lines(folder, "evaluation")] == [0, 1, 2]
    assert json.loads((folder / "federated_summary.json").read_text())["loop_completed"]
    assert "round 2/2" in out
    assert "held-out success (sampled, 4 tasks)" in out
    assert f"run folder: {folder}" in out


def test_clients_learn_something(finished):
    folder, _ = finished
    (_, first), (_, second) = digests(folder)
    assert len({first, second, json.loads((folder / "round-00000" / "state.json").read_text())["digest"]}) == 3


def test_a_folder_of_another_objective_is_refused_with_the_run_s_last_word(finished, start):
    folder, _ = finished
    process = start(folder, "trainer.lr=0.5")
    _, err = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 1
    assert err.count("\n") == 1
    assert "trained for another objective: trainer.lr was" in err


OWN = """
from envs.partition import shard
from envs.tinyguess import TinyGuess


class Guess(TinyGuess):
    def __init__(self, *, greeting, style, variant=None):
        super().__init__(style=style, variant=variant)
        assert greeting == "hello"


def slices(tasks, client_id, num_clients, *, seed, tasks_per_client, least):
    return shard(tasks, client_id, num_clients, "uniform", tasks_per_client=max(tasks_per_client, least))


def agree(transcript):
    return transcript.reward
"""
OWN_SETTINGS = (
    "env.name=own_guess:Guess", "env.settings.greeting=hello", "env.verifier=own_guess:agree",
    "partition.strategy=own_guess:slices", "partition.settings={least: 3}",
)  # fmt: skip


def test_modules_beside_the_run_are_never_taken_by_a_site(start, tmp_path: Path):
    (tmp_path / "own_guess.py").write_text(OWN)
    process = start(tmp_path / "sites", *OWN_SETTINGS, "--deployment", cwd=tmp_path)
    _, err = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 2
    assert "env.name='own_guess:Guess' names code, which a site never takes from the server" in err
    assert not (tmp_path / "sites").exists()


@pytest.mark.slow
@pytest.mark.weekly
@pytest.mark.parametrize("mode", ["inline", "process"])
def test_simulation_and_supernodes_give_the_same_weights_bit_for_bit(finished, start, tmp_path: Path, mode: str):
    process = start(tmp_path / "deployed", "--deployment", f"worker.mode={mode}")
    _, err = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0, err
    assert digests(tmp_path / "deployed") == digests(finished[0])


@pytest.mark.slow
@pytest.mark.weekly
def test_a_run_of_modules_beside_it_killed_in_a_round_resumes_to_the_weights_of_a_plain_one(
    finished, start, tmp_path: Path
):
    (tmp_path / "own_guess.py").write_text(OWN)
    folder, settings = tmp_path / "killed", (*OWN_SETTINGS, "worker.mode=process")
    process = start(folder, *settings, cwd=tmp_path)
    wait_for(folder, "client")
    family = psutil.Process(process.pid).children(recursive=True)
    wait_for(folder, "checkpoint")
    process.send_signal(signal.SIGKILL)
    process.wait()
    _, alive = psutil.wait_procs(family, timeout=60)
    assert alive == []
    assert len(digests(folder)) == 1, "killed before the second round was done"
    resumed = start(folder, *settings, cwd=tmp_path)
    _, err = resumed.communicate(timeout=TIMEOUT_S)
    assert resumed.returncode == 0, err + (folder / "logs" / "run.log").read_text()
    assert lines(folder, "resume")
    assert digests(folder) == digests(finished[0])
