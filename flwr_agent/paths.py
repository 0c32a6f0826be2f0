"""Where the package lives: a checkout, an installed tree or a Flower app bundle, found by this file's own place."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CONF = ROOT / "conf"
PACKAGES = ("flwr_agent", "strategies", "client_app", "server_app", "envs")


@cache
def code_hash() -> str:
    """SHA-256 over every Python file of the app and every preset: server and clients must agree on it."""
    digest = hashlib.sha256()
    files = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    for path in sorted([*files, *CONF.rglob("*.yaml")], key=lambda p: p.relative_to(ROOT).as_posix()):
        digest.update(path.relative_to(ROOT).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()
