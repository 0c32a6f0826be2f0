"""`python -m flwr_agent partition`: see what every client would hold and live in, before anything is trained."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from flwr_agent import presets
from flwr_agent.cli import overrides
from flwr_agent.cli.options import file_to_write
from flwr_agent.config import RunConfig


def partition(  # noqa: PLR0913 (its options)
    settings: Annotated[list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Overrides.")] = None,
    *,
    preset: Annotated[str, typer.Option(help="A name in conf/, or a YAML file.")] = "",
    html: Annotated[Path | None, typer.Option(callback=file_to_write, help="Write a page with plots there.")] = None,
    json_: Annotated[Path | None, typer.Option("--json", callback=file_to_write, help="Write the data there.")] = None,
    labels: Annotated[Path | None, typer.Option(help="Success labels for the difficulty axis.")] = None,
    play_tasks: Annotated[
        int, typer.Option(min=0, help="Tasks an oracle plays in each world, and worlds are compared on; 0 plays none.")
    ] = 20,
    cross_clients: Annotated[
        int, typer.Option(min=0, help="Train each of the first N clients for a round and play it in their worlds.")
    ] = 0,
    cross_tasks: Annotated[int, typer.Option(min=1, help="Tasks of each client for that.")] = 32,
) -> None:
    """Show each client's tasks and world, and how different the clients are; trains only for --cross-clients."""
    from flwr_agent import lens

    console = Console()
    config = configured(preset, settings or [])
    found = lens.look(config, labels=labels, play_tasks=play_tasks)
    if cross_clients:
        from flwr_agent.cross import cross_evaluate

        with console.status("") as status:
            matrix = cross_evaluate(config, range(cross_clients), cross_tasks, report=status.update)
        found = replace(found, cross=matrix)
    lens.show(found, console)
    if html is not None:
        from flwr_agent.lens_page import to_html

        _write(html, to_html(found))
    if json_ is not None:
        _write(json_, json.dumps(asdict(found)))


def configured(preset: str, arguments: list[str]) -> RunConfig:
    """The configuration of a command, with paths relative to the working directory and every knob in use.

    Raises:
        AgentError: what is wrong, in one line.
    """
    from flwr_agent import validate

    layers = presets.read({"preset": preset} | overrides.parse(arguments))
    layers = replace(layers, flat=overrides.absolute(layers.flat, Path.cwd()))
    config = presets.build(layers, base=Path.cwd())
    validate.check_knobs(config, layers.flat)
    return config


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
