"""Modules of the user's own are found by every process of a run, and nothing else is put on their path."""

from flwr_agent.cli import modules
from flwr_agent.config import resolve
from flwr_agent.paths import ROOT
from flwr_agent.rl.launch import child_env


def write(folder, *names):
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def test_the_folder_of_every_named_module_is_found(tmp_path, monkeypatch):
    write(
        tmp_path,
        "a/own_world.py",
        "b/own_package/__init__.py",
        "b/own_package/split.py",
        "c/own_names/judge.py",
        "d/own_credit.py",
    )
    for name in "abcd":
        monkeypatch.syspath_prepend(tmp_path / name)
    config = resolve(
        {
            "env.name": "own_world:World",
            "partition.strategy": "own_package.split:deal",
            "env.verifier": "own_names.judge:score",
            "algorithm.advantage": "own_credit:credit",
        }
    )
    assert modules.folders(config) == [tmp_path / name for name in "abcd"]


def test_what_is_built_in_installed_or_an_address_adds_nothing():
    assert modules.folders(resolve()) == []
    named = {
        "env.name": "json:JSONDecoder",
        "partition.strategy": "numpy:array",
        "env.verifier": "http://127.0.0.1:1/x",
    }
    assert modules.folders(resolve(named)) == []


def test_they_come_last_on_the_path_of_flower_s_processes(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}:/somewhere")
    found = child_env(tmp_path, threads=1, modules=(tmp_path / "own",))["PYTHONPATH"]
    assert found.split(":") == ["/somewhere", str(tmp_path / "own")]
