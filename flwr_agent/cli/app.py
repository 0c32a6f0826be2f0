"""The commands of `python -m flwr_agent`."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from flwr_agent.cli import keys

app = typer.Typer(
    help="Federated reinforcement learning of LLM agents.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.callback()
def root() -> None:
    """Keep `python -m flwr_agent COMMAND` even with a single command."""


@app.command()
def config(
    *,
    markdown: Annotated[bool, typer.Option(help="Print docs/configuration.md.")] = False,
    toml: Annotated[bool, typer.Option(help="Print the block [tool.flwr.app.config] of pyproject.toml.")] = False,
) -> None:
    """List every configuration key with its type, default, range and meaning."""
    if markdown or toml:
        typer.echo(keys.to_markdown() if markdown else keys.to_toml(), nl=False)
        return
    table = Table()
    for column in ("key", "type", "default"):
        table.add_column(column, no_wrap=True)
    table.add_column("allowed")
    table.add_column("meaning")
    for key in keys.listed():
        table.add_row(key.name, key.type, key.default, key.range, key.doc)
    Console().print(table)
