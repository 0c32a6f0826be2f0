"""What the options of several commands have in common."""

from __future__ import annotations

import math

import typer


def finite(value: float) -> float:
    """The value of an option that is a number; ranges let `nan` pass.

    Raises:
        BadParameter: it is not finite.
    """
    if not math.isfinite(value):
        raise typer.BadParameter(f"{value} is not a finite number.")
    return value
