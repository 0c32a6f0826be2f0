"""`python -m flwr_agent report`: what one or several runs show, as a page and pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flwr_agent.cli.options import folder_to_write


def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run folders.")],
    *,
    out: Annotated[
        Path | None,
        typer.Option(
            callback=folder_to_write, help="Folder for report.html and figures/; that of a single run, else ./report."
        ),
    ] = None,
) -> None:
    """Make one self-contained page and its figures from the ledgers of runs; runs that differ in the seed are pooled."""
    from flwr_agent.report.write import write

    place = out or (runs[0] if len(runs) == 1 else Path("report"))
    if len(runs) > 1:
        folder_to_write(place)
    typer.echo(write(runs, place))
