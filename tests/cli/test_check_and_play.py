"""The contract as a command, and episodes in the terminal."""

import io
import json
import re
import subprocess
import sys

import pytest

from envs.base import Task
from flwr_agent.__main__ import main
from flwr_agent.cli.worlds import Named
from flwr_agent.errors import ConfigError
from flwr_agent.paths import ROOT


class Odd:
    """An environment that breaks where its mode says."""

    def __init__(self, *, mode: str = "none"):
        self.mode = mode

    def tasks(self, split):
        return [Task(f"{split}-0", split, {"category": "odd"})]

    def reset(self, task, seed):
        return json.loads("{") if self.mode == "reset" else "begin"

    def step(self, action):
        return action if self.mode == "none" else {}[action]


def run(*arguments: str, typed: str = "", home) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "flwr_agent", *arguments],
        cwd=ROOT,
        env={"PYTHONPATH": f"{ROOT}:{ROOT / 'tests' / 'cli'}", "HOME": str(home), "COLUMNS": "120"},
        input=typed,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


@pytest.fixture
def here(monkeypatch, capsys):
    """Run a command in this process; gives its exit code, what it printed, and its errors."""

    def call(*arguments: str, typed: str = "") -> tuple[object, str, str]:
        monkeypatch.setattr(sys, "argv", ["flwr_agent", *arguments])
        monkeypatch.setattr(sys, "path", [*sys.path])
        monkeypatch.setattr(sys, "stdin", io.StringIO(typed))
        with pytest.raises(SystemExit) as ended:
            main()
        return ended.value.code, *capsys.readouterr()

    return call


def test_an_environment_that_keeps_the_contract_ends_with_code_0(tmp_path):
    done = run("check", "tinyguess", "prompt.style=compact", "--episodes", "2", home=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "tinyguess keeps the contract on 2 tasks of train, 2 tasks of val\n"


def test_every_broken_clause_is_a_line_and_ends_with_code_1(tmp_path):
    done = run("check", "tinyguess", "--episodes", "1", "--max-steps", "1", home=tmp_path)
    assert done.returncode == 1
    assert done.stdout.endswith(": the oracle takes more than 1 actions\n")
    assert done.stdout.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["check", "tinygues"], "did you mean 'tinyguess'?"),
        (["check", "tinyguess", "x=1"], "env.x=1"),
        (["play", "tinyguess", "--task", "9999"], "--task='9999': tinyguess has 1000 tasks in 'val'"),
        (["play", "tinyguess", "--split", "odd"], "split='odd'"),
        (["check", "tinyguess", "--splits", "train,"], "--splits='train,': give names of splits"),
        (
            ["check", "tinyguess", "--episodes", "0"],
            "Invalid value for '--episodes': 0 is not in the range x>=1. (see `",
        ),
        (["check", "--episode", "3"], "error: No such option"),
        (
            ["play", "tinyguess", "--temperature", "nan"],
            "Invalid value for '--temperature': nan is not a finite number.",
        ),
        (["chek"], "No such command 'chek'. Did you mean 'check'? (see"),
        (["doctor", "--port", "99999"], "Invalid value for '--port': 99999 is not in the range 1<=x<=65535."),
        (["key", f"{__file__}/key"], f"{__file__}: File exists; give a place"),
        (["check"], "Missing argument 'ENV'"),
        (["play", "tinyguess", "--model", "/no/such/run"], "/no/such/run/config.json: config: cannot be read"),
    ],
)
def test_bad_input_is_one_line_and_ends_with_code_2(here, arguments, message):
    code, out, err = here(*arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


def test_a_person_plays_by_typing_actions(tmp_path):
    done = run("play", "tinyguess", "--task", "guess-val-3", typed="25\n1\n50\n", home=tmp_path)
    assert done.returncode == 0
    assert "guess a number from 1 to 50" in done.stdout
    assert "not played to the end" in done.stdout
    from envs.tinyguess import secret

    done = run("play", "tinyguess", "--task", "3", typed=f"{secret('guess-val-3')}\n", home=tmp_path)
    assert "success, reward 1 after 1 actions" in done.stdout


def test_admissible_actions_are_listed(tmp_path):
    done = run("play", "minihouse", "--task", "0", typed="inventory\n", home=tmp_path)
    assert "go to " in done.stdout
    assert "You are not carrying anything." in done.stdout


@pytest.mark.parametrize(
    ("mode", "message"),
    [
        ("reset", r"cannot begin task val-0: JSONDecodeError: .* \(.*/test_check_and_play\.py:\d+\)\n$"),
        ("step", r"cannot play this action: KeyError: 'go' \(.*/test_check_and_play\.py:\d+\)\n$"),
    ],
)
def test_an_episode_that_breaks_is_one_line_that_says_where(here, mode, message):
    code, _, err = here("play", f"{__name__}:Odd", f"mode={mode}", typed="go\n")
    assert code == 2
    assert re.search(rf"^error: env\.name='{__name__}:Odd': {message}", err)


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("search_return_n=abc", r"env\.search_return_n='abc': must be of type int, not str"),
        ("search_return_n=-3", r"env\.search_return_n=-3: must be at least 1"),
        ("env.max_commands=x", r"env\.max_commands='x': must be of type int"),
        ("verifier_weight=abc", r"env\.verifier_weight='abc': must be of type float"),
        ("verifier_weight=1.5", r"env\.verifier_weight=1\.5: must be at most 1"),
        ("reward=best", r"env\.reward='best': no such choice \(allowed: strict, upstream\)"),
        ("prompt.style=fancy", r"prompt\.style='fancy': no such choice"),
        ("tinyguess", r"argument='tinyguess': write key=value"),
        ("data_path=", r"env\.data_path='': has no value; give one, or leave the key out"),
    ],
)
def test_a_value_that_a_run_refuses_is_refused(argument, message):
    with pytest.raises(ConfigError, match=message):
        Named.of("webshop", [argument])


def test_settings_are_named_as_in_a_run_or_bare():
    for arguments in (["start=4"], ["env.start=4"], ["env.settings.start=4"], ["env.settings={start: 4}"]):
        assert Named.of("my:Countdown", arguments).settings == {"start": 4}
