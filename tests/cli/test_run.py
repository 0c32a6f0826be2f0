"""Bad input through the real command: one line that names key and fix, exit code 2, no traceback, nothing started."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from flwr_agent.cli.run import is_complete, last_error, why
from flwr_agent.config import resolve
from flwr_agent.hosts.launched import Launch, Where
from flwr_agent.paths import ROOT


def run(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "flwr_agent", "run", *arguments]
    return subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, timeout=120, env={"PYTHONPATH": str(ROOT), "HOME": str(cwd)}
    )


def write_model(folder: Path, *, chat_template: str | None = None) -> Path:
    folder.mkdir()
    for name, content in {
        "config.json": {"model_type": "llama"},
        "tokenizer.json": {},
        "tokenizer_config.json": {"chat_template": chat_template} if chat_template else {},
    }.items():
        (folder / name).write_text(json.dumps(content), encoding="utf-8")
    (folder / "model.safetensors").write_bytes(b"")
    return folder


def refused(cwd: Path, *arguments: str) -> str:
    start = time.monotonic()
    done = run("env.name=tinyguess", *arguments, cwd=cwd)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    assert not (cwd / "runs").exists(), "nothing may be started"
    assert time.monotonic() - start < 60
    return done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["federation.ronds=3"], "federation.ronds=3: unknown key; did you mean federation.rounds?"),
        (["federation.rounds=many"], "federation.rounds='many': must be of type int, not str"),
        (["federation.rounds=0"], "federation.rounds=0: must be at least 1"),
        (
            ["federation.clients_per_round=3"],
            "federation.clients_per_round=3: cannot exceed federation.total_clients=2",
        ),
        (["rounds"], "argument='rounds': write key=value"),
        (["model.path=/no/such/model"], "model.path='/no/such/model': no such folder"),
        (["preset=tinygues"], "did you mean 'tinyguess'?"),
        (["env.name=webshob"], "env.name='webshob': no such environment"),
        (["env.name=absent_package:World"], "module 'absent_package' cannot be found"),
        (["env.reward=upstream"], "env.reward='upstream': tinyguess does not use this key; leave it unset"),
        (["partition.strategy=unifrom"], "did you mean 'uniform'?"),
        (["partition.omega=0.5"], "partition.omega=0.5: uniform does not use this key; leave it unset"),
        (["strategy.name=fedavgg"], "strategy.name='fedavgg': no such strategy"),
        (["strategy.prox_mu=0.1"], "strategy.prox_mu=0.1: fedavg does not use this key; leave it unset"),
        (["federation.faults=/no/faults.yaml"], "federation.faults='/no/faults.yaml': no such file"),
        (["federation.faults=/no/faults.yaml", "--dry-run"], "federation.faults='/no/faults.yaml': no such file"),
        (["--detach"], "error: --detach: needs --superlink"),
        (["federation.weights=3,-1"], "must be uniform, examples, or 2 positive numbers with commas"),
        (["worker.python=/no/python", "worker.mode=process"], "worker.python='/no/python': cannot be started"),
        (["worker.python=python3", "worker.mode=inline"], "set worker.mode=process"),
        (["worker.gpus=1.5"], "a fraction of one GPU or a whole number"),
        (["rollout.server_url=http://127.0.0.1:8000"], "set rollout.engine=vllm"),
        (
            ["trainer.deepspeed=zero2", "trainer.ranks=2", "worker.gpus=2", "trainer.minibatch_rows=33"],
            "trainer.ranks=2: does not divide trainer.minibatch_rows=33",
        ),
        (["trainer.deepspeed=zero4"], "trainer.deepspeed='zero4': "),
        (["strategy.name=lora_average"], "model.lora.rank=0: "),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_bad_input_is_one_line_with_the_fix(tmp_path: Path, arguments: list[str], message: str):
    assert message in refused(tmp_path, *arguments)


@pytest.mark.parametrize(
    ("installed", "engine", "lacks"),
    [((), "transformers", "torch"), (("torch", "transformers", "trl"), "vllm", "vllm")],
)
def test_an_interpreter_without_what_a_worker_needs_is_refused(tmp_path: Path, installed, engine: str, lacks: str):
    for package in installed:
        (tmp_path / "site" / package).mkdir(parents=True)
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path}/site exec {sys.executable} -S "$@"\n')
    python.chmod(0o755)
    reason = refused(tmp_path, f"worker.python={python}", f"rollout.engine={engine}")
    assert f"worker.python='{python}': this interpreter lacks the package {lacks}" in reason


def test_an_output_folder_below_a_file_is_refused(tmp_path: Path):
    file = tmp_path / "taken"
    file.touch()
    assert f"{file} is a file; choose another folder" in refused(tmp_path, f"output_dir={file}/run")


def test_a_model_without_chat_template_is_refused(tmp_path: Path):
    assert "the tokenizer has no chat template" in refused(tmp_path, f"model.path={write_model(tmp_path / 'model')}")


def test_a_model_without_tokenizer_is_refused(tmp_path: Path):
    model = write_model(tmp_path / "model", chat_template="{{ messages }}")
    (model / "tokenizer.json").unlink()
    assert "no tokenizer; save it there" in refused(tmp_path, f"model.path={model}")


def test_a_critic_of_another_width_is_refused(tmp_path: Path):
    model, critic = (write_model(tmp_path / name, chat_template="{{ messages }}") for name in ("model", "critic"))
    for folder, width in ((model, 8), (critic, 16)):
        config = {"model_type": "llama", "hidden_size": width}
        (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
        save_file({"score.weight": np.zeros((1, width), "f4")}, folder / "model.safetensors")
    keys = ("algorithm.name=ppo", "algorithm.group_size=1", f"model.path={model}", f"model.critic_path={critic}")
    assert "the critic is 16 wide, the policy 8" in refused(tmp_path, *keys)


def test_a_run_that_is_followed_is_not_started_twice(tmp_path: Path):
    output = tmp_path / "run"
    output.mkdir()
    Launch(where=Where(), settings={}, run_id=1).write(output)
    before = (output / "launch.json").read_bytes()
    model = write_model(tmp_path / "model", chat_template="{{ messages }}")
    reason = refused(tmp_path, f"model.path={model}", f"output_dir={output}")
    assert f"{output} is running (process {os.getpid()}); stop it first" in reason
    assert [path.name for path in output.iterdir()] == ["launch.json"]
    assert (output / "launch.json").read_bytes() == before


def test_a_bad_preset_file_is_named_with_its_line(tmp_path: Path):
    (tmp_path / "mine.yaml").write_text("seed: 1\nfederation.rounds: none\n", encoding="utf-8")
    assert "mine.yaml:2: federation.rounds='none': must be of type int" in refused(tmp_path, "--preset", "mine.yaml")


def test_dry_run_shows_the_configuration_and_its_cost_and_starts_nothing(tmp_path: Path):
    done = run("--preset", "tinyguess", "--dry-run", "federation.rounds=5", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "tinyguess-seed42" in done.stdout
    assert "one round" in done.stdout
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("log", "message"),
    [
        ("x\nflwr_agent.errors.ConfigError: seed=-1: no\n\nExit Code: 700\n", "seed=-1: no"),
        ("ValueError: first\nmore\nRuntimeError: second\n", "second"),
        ("all went well\n\n", ""),
        ("", ""),
    ],
)
def test_the_last_error_of_a_log_is_its_message(log: str, message: str):
    assert last_error(log) == message


def test_a_run_that_was_too_much_for_the_database_names_the_option():
    log = "Traceback\nhttpx.HTTPStatusError: Server error '500'"
    locked = why(log, "sqlite3.OperationalError: database is locked", "")
    assert locked.startswith("Server error '500'; the SuperLink's database did not keep up")
    assert "--in-memory" in locked
    assert why(log, "", "") == "Server error '500'"
    assert why("", "", "killed") == (
        "the ServerApp ended without an error of its own (killed); the same command resumes the run"
    )


def test_only_this_run_with_its_last_round_saved_and_scored_is_complete(tmp_path: Path):
    ours = resolve({"federation.rounds": 2})
    lines = [{"kind": "round", "round": n, "seconds": {"train": 1.0}} for n in (1, 2)]
    lines.append({"kind": "complete", "round": 2})
    ledger = tmp_path / "ledger.jsonl"
    ledger.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert not is_complete(tmp_path, ours)
    (tmp_path / "config.json").write_text(json.dumps({"fingerprint": ours.fingerprint()}))
    assert is_complete(tmp_path, ours)
    ledger.write_text("".join(json.dumps(line) + "\n" for line in lines[:-1]))
    assert not is_complete(tmp_path, ours)
    ledger.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert not is_complete(tmp_path, resolve({"federation.rounds": 3}))
    assert not is_complete(tmp_path, resolve({"federation.rounds": 2, "trainer.lr": 0.5}))


@pytest.mark.parametrize("text", ['{"fingerprint": ', "[]", "null", "{}", "\0"])
def test_a_damaged_configuration_is_of_no_complete_run(tmp_path: Path, text: str):
    (tmp_path / "config.json").write_text(text)
    assert not is_complete(tmp_path, resolve({}))
