"""The secret that a server and its clients share, in a file."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from flwr_agent.errors import ConfigError

AUTO = "auto"
MIN_LENGTH = 16


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@contextmanager
def shown(token: str, port: int) -> Iterator[Path]:
    """A file in which this user's clients on this machine find the token of the server on `port`.

    Raises:
        ConfigError: it cannot be written.
    """
    path = _place(port)
    try:
        path.parent.mkdir(parents=True, mode=0o700, exist_ok=True)
        path.unlink(missing_ok=True)
        path.touch(mode=0o600)
        path.write_text(token, encoding="utf-8")
    except OSError as error:
        fix = f"cannot keep {path} for this user's clients ({error.strerror}); set it to a folder that can be written"
        raise ConfigError("HOME", str(Path.home()), fix) from error
    try:
        yield path
    finally:
        path.unlink(missing_ok=True)


def read(token_file: str, url: str) -> str:
    """The token for a server; `auto` finds the one that a server on this machine made for its port, empty without one.

    Raises:
        ConfigError: there is no such file, what it holds is too short to be a secret, or the server is elsewhere.
    """
    if token_file != AUTO:
        return load(Path(token_file), key="env.token_file", fix="give the file that the server was started with")
    address = urlsplit(url)
    if not is_loopback(address.hostname or ""):
        raise ConfigError("env.token_file", token_file, f"{url} is not on this machine; give a file with its token")
    path = _place(address.port or 0)
    return load(path, key="env.token_file", fix="start the server again") if path.exists() else ""


def load(path: Path, *, key: str, fix: str) -> str:
    """The token in a file that the setting `key` named.

    Raises:
        ConfigError: there is no such file, or what it holds is too short to be a secret.
    """
    try:
        token = path.expanduser().read_text(encoding="utf-8").strip()
    except (OSError, RuntimeError, ValueError) as error:
        raise ConfigError(
            key, str(path), f"cannot be read ({getattr(error, 'strerror', None) or error}); {fix}"
        ) from None
    if len(token) < MIN_LENGTH:
        raise ConfigError(key, str(path), f"holds fewer than {MIN_LENGTH} characters; use a random token")
    return token


def _place(port: int) -> Path:
    return Path.home() / ".cache" / "flwr_agent" / "tokens" / str(port)
