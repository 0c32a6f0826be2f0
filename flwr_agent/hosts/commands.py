"""Command lines of Flower's programs; the one place that knows which of them the installed release takes."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

from packaging.version import Version

from flwr_agent.errors import ConfigError
from flwr_agent.hosts.certificates import Authority
from flwr_agent.rl import launch

CONTROL_OVER_HTTP = Version("1.37")
"""From this release on `flwr` reaches a SuperLink at its `--host` and `--port`; up to 1.34 it is gRPC at an address of
its own, and those between start neither way."""
FLEET_OVER_HTTP = Version("1.40")
"""From this release on SuperNodes come to that port too."""


def installed() -> Version:
    """The release of Flower that this interpreter has."""
    return Version(metadata.version("flwr"))


def check_deployment(release: Version) -> None:
    """Refuse a Flower whose SuperLink, SuperExec and SuperNodes take other command lines than those below.

    Raises:
        ConfigError: it is too old; names the release that is needed.
    """
    if release < FLEET_OVER_HTTP:
        fix = f"simulates, but a SuperLink with SuperNodes needs flwr >= {FLEET_OVER_HTTP}; upgrade it on every host"
        raise ConfigError("flwr", str(release), fix)


def simulation(host: str, control_port: int, runtime_port: int, release: Version) -> list[str]:
    """A SuperLink that simulates its SuperNodes.

    Args:
        host: address to listen at.
        control_port: where `flwr` reaches it.
        runtime_port: for its ServerApps, where the release keeps them apart.
        release: the Flower that takes the command.
    """
    address = ("--host", host, "--port", str(control_port))
    if release < CONTROL_OVER_HTTP:
        control, runtime = f"{host}:{control_port}", f"{host}:{runtime_port}"
        address = ("--control-api-address", control, "--serverappio-api-address", runtime)
    return launch.tool("flower-superlink", "--insecure", "--simulation", *address)


def superlink(authority: Authority, host: str, port: int, database: Path | None) -> list[str]:
    """A SuperLink for sites: TLS, known SuperNodes alone, ServerApps elsewhere.

    Args:
        authority: certificates, and the SuperExec's secret.
        host: address to listen at.
        port: likewise.
        database: file with its state, which lets it outlive its own death; None keeps it in memory.
    """
    kept = ("--database", str(database)) if database else ()
    return launch.tool(
        "flower-superlink", "--host", host, "--port", str(port), *kept,
        "--isolation", "process", "--superexec-auth-secret-file", str(authority.secret),
        "--enable-supernode-auth", "--ssl-ca-certfile", str(authority.root),
        "--ssl-certfile", str(authority.certificate), "--ssl-keyfile", str(authority.key),
    )  # fmt: skip


def superexec(authority: Authority, address: str) -> list[str]:
    """What starts the ServerApps of a SuperLink with `--isolation process`."""
    return launch.tool(
        "flower-superexec", "--runtime-api-address", address, "--root-certificates", str(authority.root),
        "--superexec-auth-secret-file", str(authority.secret),
    )  # fmt: skip


def supernode(
    address: str, root: Path | None, key: Path, port: int, node_config: str, trusted: Path | None = None
) -> list[str]:
    """A SuperNode with a key of its own.

    Args:
        address: the SuperLink's `HOST:PORT`.
        root: certificate of the authority that signed the SuperLink's; None trusts those of the system.
        key: private key whose public half is registered.
        port: loopback port for its ClientApps, different for every SuperNode of a host.
        node_config: what Flower's `--node-config` takes.
        trusted: YAML file with the keys of those whose apps it runs; None runs any app that the SuperLink sends.
    """
    trust = ("--root-certificates", str(root)) if root else ()
    signed = ("--trusted-entities", str(trusted)) if trusted else ()
    return launch.tool(
        "flower-supernode", "--superlink", address, *trust, "--auth-supernode-private-key", str(key),
        "--port", str(port), "--node-config", node_config, *signed,
    )  # fmt: skip
