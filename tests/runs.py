"""The real command in a process of its own, on a policy of a few thousand weights, and what its run folder says."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from policies import save_policy

from flwr_agent.paths import ROOT

TIMEOUT_S = 900
STEP = (
    *("federation.rounds=3", "federation.epochs_per_round=1", "trainer.tasks_per_step=2", "algorithm.group_size=3"),
    *("rollout.max_turns=2", "rollout.max_new_tokens=3", "rollout.max_prompt_tokens=48", "evaluation.tasks=2"),
)
"""A client-round of one step that takes a moment; an untrained policy moves by its penalties alone."""


def start(output: Path, policy: Path, *arguments: str, modules: Path | None = None) -> subprocess.Popen[str]:
    """Start a TinyGuess run whose folder is `output`, where `modules` can be imported by everybody."""
    path = f"{ROOT}:{modules}" if modules else str(ROOT)
    command = [sys.executable, "-m", "flwr_agent", "run", "--preset", "tinyguess", *STEP]
    return subprocess.Popen(
        [*command, f"model.path={policy}", f"output_dir={output}", *arguments],
        cwd=output.parent,
        env={"PYTHONPATH": path, "HOME": str(output.parent), "PATH": "/usr/bin:/bin"},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def play(output: Path, policy: Path, *arguments: str) -> None:
    """The same run in this very process, over a transport that never fails."""
    from fakes import InMemoryGrid, client

    from flwr_agent import presets
    from flwr_agent.cli import overrides
    from flwr_agent.rl import worker
    from server_app.run import run

    settings = overrides.parse([*STEP, f"model.path={policy}", f"output_dir={output}", *arguments])
    config = presets.load({"preset": "tinyguess"} | settings)
    run(config, InMemoryGrid(client(worker.serve)), initial_model=worker.initial_model, serve=worker.serve)


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Exit code and what was said."""
    out, err = process.communicate(timeout=TIMEOUT_S)
    return process.returncode, out, err


def policy(folder: Path) -> Path:
    """A folder with an untrained policy."""
    return Path(save_policy(folder))


def lines(folder: Path, *kinds: str) -> list[dict]:
    """Whole ledger lines of these kinds, or all."""
    ledger = folder / "ledger.jsonl"
    whole = ledger.read_bytes().rpartition(b"\n")[0] if ledger.is_file() else b""
    found = map(json.loads, whole.splitlines())
    return [line for line in found if not kinds or line["kind"] in kinds]


def wait_for(condition: Callable[[], object], timeout_s: float = TIMEOUT_S) -> None:
    """Wait until it holds."""
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.1)


def digests(folder: Path) -> list[tuple[int, str]]:
    """Round and model of every finished round."""
    return [(line["round"], line["digest"]) for line in lines(folder, "round")]
