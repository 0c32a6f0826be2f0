"""2 says that what a command was given is wrong, 1 that something failed: one rule for every command."""

import pytest
from ledgers import run_folder
from safetensors.numpy import save_file

from flwr_agent import errors

WRONG = {"ConfigError", "DataError", "ProtocolError", "ResumeError"}


@pytest.fixture
def run(tmp_path):
    return run_folder(tmp_path / "run")


def test_an_error_is_of_wrong_input_or_of_a_failure():
    found = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.AgentError)]
    assert {kind.__name__ for kind in found if kind.exit_code == 2} == WRONG
    assert {kind.exit_code for kind in found if kind.__name__ not in WRONG} == {1}


@pytest.mark.parametrize("damaged", ["launch.json", "round-00001/state.json"])
def test_a_damaged_file_is_wrong_input(refused, run, tmp_path, damaged):
    (run / "round-00001").mkdir()
    save_file({}, run / "round-00001" / "model.safetensors")
    (run / damaged).write_text("{")
    command = ("status", run) if damaged == "launch.json" else ("export", run, "--out", tmp_path / "out")
    assert "is damaged" in refused(*command)


def test_a_place_that_cannot_be_written_is_refused_before_the_work(refused, run, tmp_path):
    """None of these commands could do its work here: the refusal comes first."""
    file = tmp_path / "file"
    file.touch()
    for command in (
        ("export", run, "--out"),
        ("evaluate", run, "--json"),
        ("labels", "--out"),
        ("partition", "--html"),
        ("partition", "--json"),
        ("matrix", "--write"),
        ("report", run, "--out"),
        ("superlink", tmp_path, "--database"),
    ):
        assert f"'{command[-1]}': {file} is a file; choose another place." in refused(*command, file / "x")


def test_the_report_of_several_runs_is_refused_before_they_are_read(refused, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "report").touch()
    assert "report is a file; choose another place." in refused("report", "no-run", "no-other")


def test_a_superlink_has_a_database_or_none(refused, tmp_path):
    assert "contradicts --in-memory" in refused("superlink", tmp_path, "--in-memory", "--database", tmp_path / "x.db")


def test_models_without_tensors_cannot_be_compared(refused, tmp_path):
    save_file({}, tmp_path / "none.safetensors")
    assert "there is nothing to compare" in refused("compare", *[tmp_path / "none.safetensors"] * 2)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--list", "bogus=1"), "leave the settings out"),
        (("--list", "--show", "main"), "say one thing to do"),
        (("--list", "--dry-run"), "belongs to --run CELL"),
        ((), "say one thing to do"),
    ],
)
def test_nothing_that_matrix_is_given_is_passed_over(refused, arguments, reason):
    assert reason in refused("matrix", *arguments)


def test_a_dry_run_refuses_what_the_run_itself_would(refused, tmp_path, monkeypatch):
    (tmp_path / "own.py").write_text("from envs.tinyguess import TinyGuess as Own\n")
    monkeypatch.chdir(tmp_path)
    settings = ("--preset", "tinyguess", "env.name=own:Own")
    for where in (("--deployment",), ("--superlink", "127.0.0.1:1")):
        assert "env.name='own:Own' names code" in refused("run", *settings, *where, "--dry-run")
    assert not (tmp_path / "runs").exists()


def test_a_dry_run_refuses_an_output_folder_that_cannot_be_made(refused):
    assert "output_dir='/proc/x'" in refused("run", "--preset", "tinyguess", "--dry-run", "output_dir=/proc/x")
