"""Command-line options that say which Flower a run uses."""

from __future__ import annotations

from pathlib import Path

from flwr_agent.cli.options import address
from flwr_agent.errors import ConfigError
from flwr_agent.hosts.launched import DEPLOYMENT, SIMULATION, SUPERLINK, Where


def to_where(
    *, deployment: bool, in_memory: bool, superlink: str, root_certificates: Path | None, federation: str
) -> Where:
    """The options of `run` as one value.

    Raises:
        ConfigError: options that contradict each other, a wrong address, or a certificate that is not there.
    """
    if in_memory and not deployment:
        raise ConfigError(
            "--in-memory", "", "is about the SuperLink that --deployment starts; give that, or leave it out"
        )
    if not superlink:
        for option, value in (("--root-certificates", root_certificates), ("--federation", federation)):
            if value:
                raise ConfigError(option, str(value), "belongs to --superlink HOST:PORT; give that, or leave it out")
        return Where(kind=DEPLOYMENT if deployment else SIMULATION, in_memory=in_memory)
    if deployment:
        raise ConfigError("--superlink", superlink, "is a SuperLink that runs, --deployment starts one; choose one")
    if ":" in superlink:
        address(superlink)
    if root_certificates and not root_certificates.is_file():
        raise ConfigError("--root-certificates", str(root_certificates), "no such file; copy the SuperLink's ca.crt")
    if root_certificates and ":" not in superlink:
        raise ConfigError(
            "--root-certificates", str(root_certificates), f"belongs to HOST:PORT; connection {superlink!r} has its own"
        )
    root = str(root_certificates.resolve()) if root_certificates else ""
    return Where(kind=SUPERLINK, superlink=superlink, root_certificates=root, federation=federation)
