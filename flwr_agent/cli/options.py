"""What the options of several commands have in common."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path

import typer

from flwr_agent import writable
from flwr_agent.errors import ConfigError

LAST_PORT = 65535
_ADDRESS = re.compile(r"(\[[0-9a-f:.%]+\]|[^\s\[\]:/@\"'`\\]+):(?P<port>[0-9]{1,5})", re.ASCII | re.IGNORECASE)


def finite(value: float) -> float:
    """The value of an option that is a number; ranges let `nan` pass.

    Raises:
        BadParameter: it is not finite.
    """
    if not math.isfinite(value):
        raise typer.BadParameter(f"{value} is not a finite number.")
    return value


def file_to_write(value: Path | None) -> Path | None:
    """The value of an option that names a file to write, checked before the work that fills it.

    Raises:
        BadParameter: no file can be written there.
    """
    return _checked(value, writable.why_no_file)


def folder_to_write(value: Path | None) -> Path | None:
    """The value of an option that names a folder to write, checked before the work that fills it.

    Raises:
        BadParameter: no folder can be made or filled there.
    """
    return _checked(value, writable.why_no_folder)


def address(value: str) -> str:
    """The value of an option that is a SuperLink's `HOST:PORT`, or empty; an IPv6 address stands in brackets.

    Raises:
        ConfigError: it is neither.

    Example:
        >>> address("[::1]:8000")
        '[::1]:8000'
    """
    found = _ADDRESS.fullmatch(value)
    if value and not (found and 1 <= int(found["port"]) <= LAST_PORT):
        fix = "is no HOST:PORT, such as superlink.example.org:8000; leave out scheme, path, quotes and spaces"
        raise ConfigError("--superlink", value, fix)
    return value


def _checked(value: Path | None, why_not: Callable[[Path], str]) -> Path | None:
    if value is not None and (reason := why_not(value)):
        raise typer.BadParameter(f"{reason}; choose another place.")
    return value
