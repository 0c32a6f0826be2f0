"""Commands of the hosts of a federation: certificates and keys, the SuperLink and its SuperExec, a site."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from flwr_agent.cli import overrides
from flwr_agent.cli.options import address, file_to_write
from flwr_agent.errors import AgentError, ConfigError
from flwr_agent.hosts.finding import Finding, Verdict

PARTITION = "partition-id"
Certificates = Annotated[
    Path,
    typer.Argument(help="Folder that `flwr-agent certificates` made.", exists=True, file_okay=False, resolve_path=True),
]
Address = Annotated[str, typer.Option("--superlink", callback=address, help="HOST:PORT of the SuperLink.")]
Root = Annotated[
    Path | None,
    typer.Option(
        "--root-certificates",
        help="Certificate of the authority that signed the SuperLink's (ca.crt); without it those of the system count.",
        exists=True,
        resolve_path=True,
    ),
]
IN_MEMORY = "The SuperLink keeps its state in memory, not in a database: for large models; lost when it dies."
Threads = Annotated[int, typer.Option(min=1, help="CPU threads of one process of an app.")]


class UnfitError(AgentError, RuntimeError):
    """This host could not do its part; says what was found and the way out."""


def certificates(
    folder: Annotated[Path, typer.Argument(help="Folder to make.")],
    hosts: Annotated[list[str], typer.Argument(help="Names and addresses under which sites reach the SuperLink.")],
) -> None:
    """Make what a SuperLink needs: an authority, the SuperLink's certificate and key, a SuperExec's secret."""
    from flwr_agent.hosts.certificates import make_authority

    made = make_authority(folder, list(dict.fromkeys([*hosts, "localhost", "127.0.0.1"])))
    typer.echo(f"{made.root}: give it to every site and to whoever submits runs")
    typer.echo(f"{made.certificate}, {made.key}, {made.secret}: they stay on the SuperLink's host")


def key(
    file: Annotated[Path, typer.Argument(help="File of the private key; FILE.pub will be the public one.")],
) -> None:
    """Make a site's key: the private half stays at the site, the public half is registered at the SuperLink."""
    from flwr_agent.hosts.certificates import make_key

    public = make_key(file)
    typer.echo(f"{public}: send it to the SuperLink's host, for `flwr-agent register {public.name}`")


def register(
    public_key: Annotated[
        Path, typer.Argument(help="A site's public key.", exists=True, dir_okay=False, resolve_path=True)
    ],
    *,
    superlink: Address = "127.0.0.1:8000",
    root_certificates: Root = None,
) -> None:
    """Let the site with this key join, now and whenever it comes back."""
    from flwr_agent.hosts import network
    from flwr_agent.hosts.certificates import check_public
    from flwr_agent.hosts.launched import SUPERLINK, Where
    from flwr_agent.hosts.superlink import reached

    check_public(public_key)
    reachable = next(network.superlink(superlink, root_certificates))
    if reachable.verdict is Verdict.FAIL:
        raise _unfit(reachable)
    with reached(Where(kind=SUPERLINK, superlink=superlink, root_certificates=str(root_certificates or ""))) as link:
        link.register(public_key)
    typer.echo(f"{public_key.name} may join")


def superlink(
    folder: Certificates,
    *,
    host: Annotated[str, typer.Option(help="Address to listen at.")] = "0.0.0.0",  # noqa: S104 - sites come from outside
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port to listen at.")] = 8000,
    database: Annotated[
        Path | None,
        typer.Option(
            callback=file_to_write, help="File with the state of runs; state.db if not given.", resolve_path=True
        ),
    ] = None,
    in_memory: Annotated[bool, typer.Option("--in-memory", help=IN_MEMORY)] = False,
    threads: Threads = 1,
) -> None:
    """Become a SuperLink: TLS, known sites alone, state on disk; a SuperExec beside it runs the ServerApps."""
    from flwr_agent.hosts import commands, network
    from flwr_agent.hosts.certificates import Authority
    from flwr_agent.rl import launch

    if in_memory and database:
        raise ConfigError("--database", str(database), "contradicts --in-memory; choose one")
    authority = Authority(folder)
    authority.check(authority.root, authority.certificate, authority.key, authority.secret)
    commands.check_deployment(commands.installed())
    _insist([network.port(port)])
    kept = None if in_memory else database or file_to_write(Path("state.db").resolve())
    command = commands.superlink(authority, host, port, kept)
    launch.become(command, launch.child_env(None, threads=threads))


def superexec(folder: Certificates, *, superlink: Address = "127.0.0.1:8000", threads: Threads = 1) -> None:
    """Become the SuperExec of a SuperLink: what starts the ServerApps, and outlives a SuperLink that is restarted."""
    from flwr_agent.hosts import commands
    from flwr_agent.hosts.certificates import Authority
    from flwr_agent.rl import launch

    authority = Authority(folder)
    authority.check(authority.root, authority.secret)
    commands.check_deployment(commands.installed())
    launch.become(commands.superexec(authority, superlink), launch.child_env(None, threads=threads))


def site(  # noqa: PLR0913 - options of a command
    settings: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME=VALUE]...", help="What this site says of itself (Flower's node config)."),
    ] = None,
    *,
    superlink: Address,
    key: Annotated[Path, typer.Option(help="This site's private key.", resolve_path=True)],
    partition_id: Annotated[int, typer.Option(min=0, help="The client that this site is.")],
    root_certificates: Root = None,
    port: Annotated[
        int, typer.Option(min=1, max=65535, help="Loopback port for ClientApps; each site of a host its own.")
    ] = 9094,
    trusted_entities: Annotated[
        Path | None,
        typer.Option(
            help="YAML file of Flower's, key id: public key; apps that none of them has signed are refused.",
            exists=True,
            dir_okay=False,
            resolve_path=True,
        ),
    ] = None,
    threads: Threads = 1,
) -> None:
    """Become a site's SuperNode, once what it says of itself, its key, port, SuperLink and clock are found in order."""
    from flwr_agent.hosts import commands, network
    from flwr_agent.rl import launch

    config = to_node_config({**of_itself(overrides.parse(settings or [])), PARTITION: partition_id})
    commands.check_deployment(commands.installed())
    _insist([network.key(key), network.port(port), *network.superlink(superlink, root_certificates)])
    command = commands.supernode(superlink, root_certificates, key, port, config, trusted_entities)
    launch.become(command, launch.child_env(None, threads=threads))


def of_itself(settings: dict[str, Any]) -> dict[str, Any]:
    """A site's settings, with its file as a SuperNode finds it, whatever folder that works in.

    Raises:
        ConfigError: a setting that would not be obeyed or is wrong, or no such file.
        DataError: the file is malformed.
    """
    from flwr_agent.site import KEY, privacy, read

    if KEY in settings:
        settings = {**settings, KEY: str(Path(str(settings[KEY])).expanduser().absolute())}
    read(settings)
    privacy(settings)
    return settings


def to_node_config(settings: dict[str, bool | int | float | str]) -> str:
    """What Flower's `--node-config` takes.

    Raises:
        ConfigError: a name or value that cannot stand there.

    Example:
        >>> to_node_config({"partition-id": 0, "data": "/srv/shop"})
        'partition-id=0 data="/srv/shop"'
    """
    for name, value in settings.items():
        if not name.replace("-", "").replace("_", "").replace(".", "").isalnum() or '"' in str(value):
            raise ConfigError(name, value, "a site's settings are NAME=VALUE, without quotation marks in them")
    return " ".join(f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in settings.items())


def _insist(findings: Iterable[Finding]) -> None:
    for finding in findings:
        typer.echo(str(finding))
        if finding.verdict is Verdict.FAIL:
            raise _unfit(finding)


def _unfit(finding: Finding) -> UnfitError:
    return UnfitError(f"{finding.name}: {finding.found}; {finding.fix}")
