"""What the options of several commands have in common."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import typer

from flwr_agent import writable


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


def _checked(value: Path | None, why_not: Callable[[Path], str]) -> Path | None:
    if value is not None and (reason := why_not(value)):
        raise typer.BadParameter(f"{reason}; choose another place.")
    return value
