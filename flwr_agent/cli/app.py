"""The commands of `python -m flwr_agent`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from flwr_agent.cli import (
    check,
    doctor,
    export,
    hosts,
    keys,
    labels,
    matrix,
    partition,
    play,
    report,
    runs,
    serve,
    tools,
)
from flwr_agent.errors import ConfigError

app = typer.Typer(
    help="Federated reinforcement learning of LLM agents.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    suggest_commands=False,
)
app.command()(play.play)
app.command()(check.check)
app.command()(serve.serve)

app.command()(partition.partition)
app.command()(labels.labels)
app.command()(matrix.matrix)
app.command()(report.report)
app.command()(export.export)
app.command()(tools.evaluate)
app.command()(tools.compare)
app.command("rebuild-summary")(tools.rebuild_summary)
app.command()(doctor.doctor)
app.command()(runs.status)
app.command()(runs.stop)
app.command()(runs.resume)
for command in (hosts.certificates, hosts.key, hosts.register, hosts.superlink, hosts.superexec, hosts.site):
    app.command()(command)


@app.command()
def run(  # noqa: PLR0913 - options of a command
    context: typer.Context,
    settings: Annotated[list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Overrides.")] = None,
    *,
    preset: Annotated[str, typer.Option(help="A name in conf/, or a YAML file.")] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show configuration and cost, start nothing.")] = False,
    deployment: Annotated[
        bool, typer.Option("--deployment", help="SuperNodes with processes of their own instead of the simulation.")
    ] = False,
    in_memory: Annotated[bool, typer.Option("--in-memory", help=hosts.IN_MEMORY)] = False,
    superlink: Annotated[
        str, typer.Option(help="HOST:PORT of a SuperLink that runs, or a connection in your Flower configuration.")
    ] = "",
    root_certificates: Annotated[
        Path | None, typer.Option(help="Certificate of the authority that signed the SuperLink's.")
    ] = None,
    federation: Annotated[str, typer.Option(help="Flower federation at that SuperLink, @ACCOUNT/NAME.")] = "",
    detach: Annotated[bool, typer.Option("--detach", help="Leave once that SuperLink has the run.")] = False,
) -> None:
    """Train: validate, start Flower, show progress, end with the run's real status."""
    from flwr_agent.cli import run as running
    from flwr_agent.cli.where import to_where

    console = Console()
    where = to_where(
        deployment=deployment,
        in_memory=in_memory,
        superlink=superlink,
        root_certificates=root_certificates,
        federation=federation,
    )
    if detach and not superlink:
        raise ConfigError("--detach", "", "needs --superlink HOST:PORT; a SuperLink of the run's own ends with it")
    plan = running.plan(
        preset,
        settings or [],
        base=Path.cwd(),
        load_strategy=context.obj.load_strategy,
        is_here=not superlink,
    )
    if dry_run:
        running.show(plan, console, where)
    else:
        running.execute(plan, console, where, detach=detach)


@app.command()
def config(
    *,
    markdown: Annotated[bool, typer.Option(help="Print docs/configuration.md.")] = False,
    toml: Annotated[bool, typer.Option(help="Print the block \\[tool.flwr.app.config] of pyproject.toml.")] = False,
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
