"""Runs that differ in a few settings, through the command, and what their ledgers say."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from flwr_agent.report.statistics import wilson


def ledger_of(folder: Path, settings: Iterable[str]) -> list[dict[str, Any]]:
    """The ledger of a run in `folder`, which is played unless it is there; an interrupted one is resumed."""
    summary = folder / "federated_summary.json"
    if not (summary.is_file() and json.loads(summary.read_text())["loop_completed"]):
        command = [sys.executable, "-m", "flwr_agent", "run", f"output_dir={folder}", *settings]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)  # noqa: S603
    return [json.loads(line) for line in (folder / "ledger.jsonl").read_text().splitlines()]


def of_kind(ledger: Sequence[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    """Its lines of one kind."""
    return [line for line in ledger if line["kind"] == kind]


def success(evaluations: Sequence[dict[str, Any]], mode: str = "sampled") -> str:
    """Held-out success over some evaluations, with its 95 % interval over the tasks."""
    outcomes = np.mean([line["outcomes"][f"{mode}/success"] for line in evaluations], axis=0)
    low, high = wilson(float(outcomes.sum()), len(outcomes))
    return f"{outcomes.mean():.3f} ({low:.3f} to {high:.3f})"


def show(rows: Sequence[Sequence[str]]) -> None:
    """Print a Markdown table; the first row is its head."""
    head, *body = rows
    for row in (head, ["---"] * len(head), *body):
        sys.stdout.write(f"| {' | '.join(row)} |\n")
