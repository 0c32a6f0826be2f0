"""The contract as a command, and episodes in the terminal."""

import subprocess
import sys

import pytest

from flwr_agent.paths import ROOT


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


def test_an_environment_that_keeps_the_contract_ends_with_code_0(tmp_path):
    done = run("check", "tinyguess", "prompt.style=compact", "--episodes", "2", home=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "tinyguess keeps the contract on 2 tasks of each of train,val" in done.stdout


def test_every_broken_clause_is_a_line_and_ends_with_code_1(tmp_path):
    done = run("check", "tinyguess", "--episodes", "1", "--max-steps", "1", home=tmp_path)
    assert done.returncode == 1
    assert all("actions, more than 1" in line for line in done.stdout.splitlines())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["check", "tinygues"], "did you mean 'tinyguess'?"),
        (["check", "tinyguess", "x=1"], "env.x=1"),
        (["play", "tinyguess", "--task", "9999"], "--task='9999': tinyguess has 1000 tasks in 'val'"),
        (["play", "tinyguess", "--split", "odd"], "split='odd'"),
        (["play", "tinyguess", "--model", "/no/such/run"], "/no/such/run/config.json: config: cannot be read"),
    ],
)
def test_bad_input_is_one_line_and_ends_with_code_2(tmp_path, arguments, message):
    done = run(*arguments, home=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


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
