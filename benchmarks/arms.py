"""Runs that differ in a few settings: what a command is told of them, and what their ledgers say."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import repeated
from flwr_agent.report.statistics import wilson

Line = dict[str, Any]


def options(doc: str | None, folder: str) -> argparse.Namespace:
    """`folder` of the runs (this one unless another is given), `settings` for every run, `jobs` side by side."""
    parser = argparse.ArgumentParser(description=doc)
    parser.add_argument("settings", nargs="*", metavar="[FOLDER] KEY=VALUE", help="folder of the runs; for every run")
    parser.add_argument("--jobs", type=int, default=1, help="runs side by side, two cores each")
    given = parser.parse_intermixed_args()
    has_folder = bool(given.settings) and "=" not in given.settings[0]
    given.folder = Path(given.settings.pop(0) if has_folder else folder).absolute()
    return given


def ledgers(runs: repeated.Runs, jobs: int, *, keep: bool = False) -> dict[Path, list[Line]]:
    """The ledger of each run, once all are done; `keep` leaves their checkpoints where they are."""
    repeated.finish(runs, jobs, keep=keep)
    return {run: [json.loads(line) for line in (run / "ledger.jsonl").read_text().splitlines()] for run in runs}


def of_kind(ledger: Sequence[Line], kind: str) -> list[Line]:
    """Its lines of one kind."""
    return [line for line in ledger if line["kind"] == kind]


def outcomes(evaluations: Sequence[Line], mode: str = "sampled") -> np.ndarray:
    """Success of each held-out task, the mean over some evaluations `[N]`."""
    return np.mean([line["outcomes"][f"{mode}/success"] for line in evaluations], axis=0)


def interval(of_tasks: Sequence[float] | np.ndarray) -> str:
    """Mean over tasks with its 95 % interval."""
    low, high = wilson(float(np.sum(of_tasks)), len(of_tasks))
    return f"{np.mean(of_tasks):.3f} ({low:.3f} to {high:.3f})"


def show(rows: Sequence[Sequence[str]]) -> None:
    """Print a Markdown table and an empty line; the first row is its head."""
    head, *body = rows
    for row in (head, ["---"] * len(head), *body):
        sys.stdout.write(f"| {' | '.join(row)} |\n")
    sys.stdout.write("\n")
