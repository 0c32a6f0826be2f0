"""The files that a run makes from its ledger, made again."""

from __future__ import annotations

from pathlib import Path

from flwr_agent import lines, presets
from flwr_agent.config import resolve
from flwr_agent.report import write as report
from server_app import client_metrics, summary


def rebuild(folder: Path) -> list[Path]:
    """Write summary, client metrics and page anew; returns the paths of summary and page.

    Raises:
        DataError: the folder is not one of a run, or its ledger is damaged or of another version.
    """
    config = resolve(presets.of_run(folder))
    found = lines.read(folder / lines.FILE)
    summary.write(folder, config, found)
    client_metrics.write(folder, found, epochs=config.federation.epochs_per_round)
    return [folder / summary.FILE, report.write([folder], folder)]
