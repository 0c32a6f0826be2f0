"""The files that a run makes from its ledger, made again."""

from __future__ import annotations

from pathlib import Path

from flwr_agent import presets
from flwr_agent.config import resolve
from flwr_agent.errors import DataError
from flwr_agent.report import write as report
from server_app import client_metrics, summary
from server_app.ledger import FILE, Ledger


def rebuild(folder: Path) -> list[Path]:
    """Write summary, client metrics and page anew; returns the paths of summary and page.

    Raises:
        DataError: the folder is not one of a run.
        ResumeError: its ledger is damaged or of another version.
    """
    config = resolve(presets.of_run(folder))
    if not (folder / FILE).is_file():
        raise DataError(folder / FILE, "file", "is missing; give the folder of a run")
    lines = Ledger(folder).lines()
    summary.write(folder, config, lines)
    client_metrics.write(folder, lines, epochs=config.federation.epochs_per_round)
    return [folder / summary.FILE, report.write([folder], folder)]
