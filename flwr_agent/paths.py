"""Where the package lives: a checkout, an installed tree or a Flower app bundle, found by this file's own place."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
IS_SOURCE = (ROOT / "pyproject.toml").is_file()
"""Whether this is a checkout or a bundle, not a package that was installed."""
CONF = ROOT / ("conf" if IS_SOURCE else "flwr_agent/conf")
PACKAGES = ("flwr_agent", "strategies", "client_app", "server_app", "envs")


@cache
def code_hash() -> str:
    """SHA-256 over every Python file of the app and every preset: server and clients must agree on it."""
    digest = hashlib.sha256()
    files = [(path, ROOT) for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    files += [(path, CONF.parent) for path in CONF.rglob("*.yaml")]
    for name, path in sorted((path.relative_to(base).as_posix(), path) for path, base in files):
        digest.update(name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()
