"""Runs that differ in a few settings, through the command, and what their ledgers say."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from flwr_agent.report.statistics import wilson

Line = dict[str, Any]


def asked(doc: str | None, folder: str) -> argparse.Namespace:
    """`folder` (that one unless another is given), `settings` laid over every run, and how many `jobs` go side by side."""
    options = argparse.ArgumentParser(description=doc)
    options.add_argument("folder", nargs="?", type=Path, default=Path(folder), help="folder of the runs")
    options.add_argument("settings", nargs="*", metavar="KEY=VALUE", help="laid over every run")
    options.add_argument("--jobs", type=int, default=1, help="runs side by side, two cores each")
    return options.parse_intermixed_args()


def play(runs: Mapping[Path, Sequence[str]], jobs: int) -> dict[Path, list[Line]]:
    """The ledger of each run, `jobs` of them side by side; what is complete is kept, what was interrupted is resumed."""
    with ThreadPoolExecutor(jobs) as pool:
        return dict(zip(runs, pool.map(_ledger, runs, runs.values()), strict=True))


def _ledger(folder: Path, settings: Sequence[str]) -> list[Line]:
    summary = folder / "federated_summary.json"
    if not (summary.is_file() and json.loads(summary.read_text())["loop_completed"]):
        command = [sys.executable, "-m", "flwr_agent", "run", f"output_dir={folder}", *settings]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)  # noqa: S603
    return [json.loads(line) for line in (folder / "ledger.jsonl").read_text().splitlines()]


def of_kind(ledger: Sequence[Line], kind: str) -> list[Line]:
    """Its lines of one kind."""
    return [line for line in ledger if line["kind"] == kind]


def outcomes(evaluations: Sequence[Line], mode: str = "sampled") -> np.ndarray:
    """Success of each held-out task, the mean over some evaluations `[N]`."""
    return np.mean([line["outcomes"][f"{mode}/success"] for line in evaluations], axis=0)


def success(evaluations: Sequence[Line], mode: str = "sampled") -> str:
    """Held-out success over some evaluations, with its 95 % interval over the tasks."""
    of_tasks = outcomes(evaluations, mode)
    low, high = wilson(float(of_tasks.sum()), len(of_tasks))
    return f"{of_tasks.mean():.3f} ({low:.3f} to {high:.3f})"


def show(rows: Sequence[Sequence[str]]) -> None:
    """Print a Markdown table; the first row is its head."""
    head, *body = rows
    for row in (head, ["---"] * len(head), *body):
        sys.stdout.write(f"| {' | '.join(row)} |\n")
