"""`python -m flwr_agent doctor`: is this host fit for a run?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from flwr_agent.cli import preview
from flwr_agent.cli.options import address
from flwr_agent.cli.partition import configured
from flwr_agent.config import RunConfig

SERVER_PORTS, SITE_PORTS = [8000], [9094]
"""Flower's own defaults: of the SuperLink, and of a SuperNode for its ClientApps."""


def doctor(  # noqa: PLR0913 - options of a command
    settings: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Overrides of the run to come.")
    ] = None,
    *,
    preset: Annotated[str, typer.Option(help="A name in conf/, or a YAML file.")] = "",
    server: Annotated[bool, typer.Option("--server", help="This host is to run the SuperLink, not a site.")] = False,
    superlink: Annotated[str, typer.Option(callback=address, help="HOST:PORT of the SuperLink to join.")] = "",
    root_certificates: Annotated[
        Path | None, typer.Option(help="Certificate of the authority that signed the SuperLink's.")
    ] = None,
    key: Annotated[Path | None, typer.Option(help="Private key of this host's SuperNode.")] = None,
    port: Annotated[
        list[int] | None, typer.Option(min=1, max=65535, help="A port that will be listened on; may be repeated.")
    ] = None,
    code: Annotated[str, typer.Option(help="Code hash of the federation, as the server's doctor prints it.")] = "",
    json_: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
) -> None:
    """Look at this host before it joins a run: one line a finding, with the way out; exit code 1 if a run would fail."""
    from flwr_agent.hosts.doctor import Host, examine
    from flwr_agent.hosts.finding import Verdict

    config = configured(preset, settings or [])
    host = Host(
        config=config,
        model_bytes=_model_bytes(config),
        is_server=server,
        superlink=superlink,
        root_certificates=root_certificates,
        key=key,
        ports=port or (SERVER_PORTS if server else SITE_PORTS),
        code=code,
    )
    findings = []
    for finding in examine(host):
        findings.append(finding)
        if not json_:
            typer.echo(str(finding))
    if json_:
        typer.echo(json.dumps([finding.to_dict() for finding in findings], indent=1))
    if any(finding.verdict is Verdict.FAIL for finding in findings):
        raise typer.Exit(1)


def _model_bytes(config: RunConfig) -> int:
    size = preview.size_of(config.model.path)
    return size.parameters * preview.FP32_BYTES if size else 0
