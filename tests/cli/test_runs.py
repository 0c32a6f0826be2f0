"""Commands on a run's folder, without a run."""

import json
import shutil
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import psutil
import pytest
from typer.testing import CliRunner

from flwr_agent.cli import runs
from flwr_agent.cli.app import app
from flwr_agent.config import resolve
from flwr_agent.errors import AgentError, ConfigError, DataError, ResumeError
from flwr_agent.hosts.launched import SUPERLINK, Launch, Where
from flwr_agent.hosts.superlink import FORGOTTEN, LaunchError, SuperLink

DEAD = {"pid": 2**22 - 1, "created": 0.0}


def folder_of(path: Path, *, rounds_done: int, launch: Launch | None, is_complete: bool = False) -> Path:
    config = resolve({"federation.rounds": 3, "trainer.lr": 0.5})
    (path / "config.json").write_text(json.dumps({"fingerprint": "", "config": config.flat()}))
    done = range(1, rounds_done + 1)
    ledger = [{"kind": "round", "round": n, "seconds": {"train": 1.0}} for n in done]
    ledger += [{"kind": "checkpoint", "round": n} for n in done]
    ledger += [{"kind": "client", "round": rounds_done + 1, "client_id": 1, "status": "failed", "reason": "no disk"}]
    ledger += [{"kind": "complete", "round": 3}] if is_complete else []
    (path / "ledger.jsonl").write_text("".join(json.dumps(line) + "\n" for line in ledger))
    if launch:
        launch.write(path)
    return path


def launched(**process: float) -> Launch:
    return Launch(where=Where(), settings={"trainer.lr": 0.5}, run_id=7, **process)


def said(*arguments: object) -> str:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_status_of_a_run_whose_launcher_is_gone_says_how_to_go_on(tmp_path: Path):
    out = said("status", folder_of(tmp_path, rounds_done=1, launch=launched(**DEAD)))
    assert f"{tmp_path}: interrupted" in out
    assert "round 1 of 3 done" in out
    assert "client 1 failed in round 2: no disk" in out
    assert f"flwr-agent resume {tmp_path}" in out


@pytest.mark.parametrize(
    ("rounds_done", "is_complete", "process", "state"),
    [
        (1, False, {}, "running"),
        (3, True, DEAD, "finished:completed"),
        (2, False, DEAD, "interrupted"),
        (3, False, DEAD, "interrupted"),
    ],
)
def test_status_for_machines_holds_the_same(tmp_path: Path, rounds_done, is_complete, process, state):
    folder_of(tmp_path, rounds_done=rounds_done, launch=launched(**process), is_complete=is_complete)
    facts = json.loads(said("status", tmp_path, "--json"))
    assert (facts["state"], facts["round"], facts["rounds"], facts["run_id"]) == (state, rounds_done, 3, 7)


def test_a_folder_without_a_run_is_refused(tmp_path: Path):
    with pytest.raises(ResumeError, match=r"holds neither launch\.json nor ledger\.jsonl"):
        said("status", tmp_path)


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        (
            "config.json",
            "{{{",
            r"config\.json: config: is damaged .*; restore it, or give the command of the run again",
        ),
        ("config.json", '{"config": null}', r"config\.json: config: is damaged"),
        ("ledger.jsonl", "x\n", r"ledger\.jsonl: ledger: .*restore it from a copy, or run with fresh=true"),
        ("launch.json", '{"where": {}, "settings": {}, "run_id": 7}', r"launch\.json is damaged \('pid'\)"),
        ("launch.json", '{"where": {}, "settings": {}, "run_id": 7, "pid": -5, "created": 1}', "damaged .pid is -5"),
        ("ledger.jsonl", "[1]\n", r"ledger\.jsonl: ledger: cannot be read \(line 1 is no ledger line"),
        ("ledger.jsonl", '{"kind": "client"}\n', r"ledger\.jsonl: ledger: cannot be read"),
    ],
)
def test_status_of_a_damaged_folder_names_the_file(tmp_path: Path, file, text, message):
    folder = folder_of(tmp_path, rounds_done=1, launch=launched(**DEAD))
    (folder / file).write_text(text)
    with pytest.raises((DataError, ResumeError), match=message):
        said("status", folder)


IDLE_PARENT = "import subprocess, time; print(subprocess.Popen(['sleep', '600']).pid, flush=True); time.sleep(600)"


def test_stop_ends_the_process_that_follows_the_run_and_nothing_else(tmp_path: Path):
    parent = subprocess.Popen([sys.executable, "-c", IDLE_PARENT], stdout=subprocess.PIPE, text=True)
    try:
        assert parent.stdout
        follower = psutil.Process(int(parent.stdout.readline()))
        place = launched(pid=follower.pid, created=follower.create_time())
        out = said("stop", folder_of(tmp_path, rounds_done=1, launch=place))
        assert "flwr-agent resume" in out
        assert follower.status() == psutil.STATUS_ZOMBIE, "it has ended, and its parent has not looked yet"
        assert Launch.read(tmp_path).follower() is None
        with pytest.raises(ResumeError, match="nothing runs in"):
            said("stop", tmp_path)
        assert parent.poll() is None
    finally:
        parent.kill()
        parent.wait()


def test_status_of_a_run_whose_scores_have_no_success(tmp_path: Path):
    folder = folder_of(tmp_path, rounds_done=1, launch=None)
    line = {"kind": "evaluation", "round": 1, "metrics": {"reward": 1.0}, "outcomes": {}, "seconds": 1.0}
    with (folder / "ledger.jsonl").open("a") as ledger:
        ledger.write(json.dumps(line) + "\n")
    assert "round 1 of 3 done" in said("status", folder)


def test_a_run_with_a_key_of_another_version_is_not_resumed(tmp_path: Path):
    folder = folder_of(tmp_path, rounds_done=1, launch=launched(**DEAD))
    facts = json.loads((folder / "config.json").read_text())
    facts["config"]["trainer.warp"] = 9
    (folder / "config.json").write_text(json.dumps(facts))
    with pytest.raises(ResumeError, match=r"config\.json has a key that this flwr-agent does not know: trainer\.warp"):
        said("resume", folder)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["output_dir=/other"], "output_dir='/other': resume goes on with what is in the folder"),
        (["fresh=true"], "fresh=True: resume goes on with what is in the folder"),
        (["--detach"], "--detach: belongs to a run at a --superlink"),
    ],
)
def test_what_a_resume_cannot_mean_is_refused(tmp_path: Path, arguments: list[str], message: str):
    with pytest.raises(ConfigError, match=message):
        said("resume", folder_of(tmp_path, rounds_done=1, launch=launched(**DEAD)), *arguments)


def test_status_of_a_run_that_ended_by_its_privacy_budget_says_what_to_raise(tmp_path: Path):
    folder = folder_of(tmp_path, rounds_done=1, launch=launched(**DEAD))
    facts = json.loads((folder / "config.json").read_text())
    for budget, is_spent in ((5.5, True), (50.0, False)):
        facts["config"] |= {"privacy.noise_multiplier": 1.0, "privacy.budget": budget}
        (folder / "config.json").write_text(json.dumps(facts))
        assert ("privacy.budget=EPSILON, above 5.5" in said("status", folder)) is is_spent


def test_a_copied_folder_has_no_run_to_stop_and_can_go_on(tmp_path: Path):
    run, copy = tmp_path / "run", tmp_path / "copy"
    run.mkdir()
    shutil.copytree(folder_of(run, rounds_done=1, launch=launched()), copy)
    with pytest.raises(ResumeError, match=rf"nothing runs in {copy}: its launch\.json is of {run}; give the folder"):
        said("stop", copy)
    assert json.loads(said("status", copy, "--json"))["state"] == "interrupted"
    assert json.loads(said("status", run, "--json"))["state"] == "running"


class Answering(SuperLink):
    """A SuperLink of which Flower's command says always the same."""

    def _ask(self, *arguments):
        raise LaunchError(f"flwr {arguments[0]} failed: {self.env['says']}")


def at(monkeypatch, path: Path, says: str) -> Answering:
    link = Answering(connection="own", cwd=path, env={"says": says})
    monkeypatch.setattr(runs, "reached", lambda where: nullcontext(link))
    place = Launch(where=Where(kind=SUPERLINK, superlink="far:8000"), settings={}, run_id=7)
    folder_of(path, rounds_done=1, launch=place)
    return link


def test_a_run_that_its_superlink_has_forgotten_is_interrupted_and_can_be_resumed(monkeypatch, tmp_path: Path):
    link = at(monkeypatch, tmp_path, "Displaying information for run ID 7... [code: 16] Run ID not found.")
    assert link.status(7) == FORGOTTEN
    assert "knows nothing of it" in link.details(7)
    out = said("status", tmp_path)
    assert f"{tmp_path}: interrupted" in out
    assert f"flwr-agent resume {tmp_path}" in out


def test_a_superlink_that_does_not_answer_is_not_taken_for_one_that_has_forgotten(monkeypatch, tmp_path: Path):
    at(monkeypatch, tmp_path, "Connection to the SuperLink is unavailable.")
    with pytest.raises(LaunchError, match="unavailable"):
        said("status", tmp_path)


def test_a_running_run_is_not_started_twice(tmp_path: Path):
    folder_of(tmp_path, rounds_done=1, launch=launched())
    with pytest.raises(AgentError, match="is running; stop it first"):
        said("resume", tmp_path)


def test_what_goes_on_is_the_run_in_the_folder_not_the_last_start_that_it_refused(tmp_path: Path):
    refused = Launch(where=Where(), settings={"trainer.lr": 0.9}, run_id=8)
    folder_of(tmp_path, rounds_done=1, launch=refused)
    assert runs._settings(tmp_path, refused) == {"federation.rounds": 3, "trainer.lr": 0.5}
