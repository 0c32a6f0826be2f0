"""Reads what a verifier left in its folder: `reward.json` (a table of numbers) before `reward.txt` (one number)."""

from __future__ import annotations

import json
import math
import stat
from pathlib import Path
from typing import Any

from flwr_agent.errors import EnvError

_MAX_BYTES = 100_000


def read(folder: Path) -> float:
    """The reward, within [0, 1]: in a table the number named `reward`, or its only one.

    Raises:
        EnvError: no reward file, or what it holds is not such a number.
    """
    table, single = folder / "reward.json", folder / "reward.txt"
    if _exists(table):
        value = _from_table(_text(table))
    elif _exists(single):
        value = _number(_text(single), single.name)
    else:
        raise EnvError("harbor: the verifier left neither reward.json nor reward.txt in /logs/verifier")
    if not 0.0 <= value <= 1.0:
        raise EnvError(f"harbor: reward {value} must lie between 0 and 1")
    return value


def _exists(file: Path) -> bool:
    return file.is_symlink() or file.exists()


def _text(file: Path) -> str:
    """The content of a plain file; a link is not followed, wherever it leads."""
    if not stat.S_ISREG(file.lstat().st_mode):
        raise EnvError(f"harbor: {file.name} is not a plain file")
    try:
        with file.open("rb") as stream:
            return stream.read(_MAX_BYTES).decode()
    except UnicodeDecodeError as error:
        raise EnvError(f"harbor: {file.name} is not text") from error


def _from_table(text: str) -> float:
    try:
        table = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise EnvError("harbor: reward.json is not JSON") from error
    if not isinstance(table, dict) or not table:
        raise EnvError("harbor: reward.json must hold a table of numbers")
    values = {name: _number(value, f"reward.json: {name}") for name, value in table.items()}
    if "reward" in values:
        return values["reward"]
    if len(values) > 1:
        raise EnvError(f"harbor: reward.json names none of its numbers 'reward', but {sorted(values)}")
    return next(iter(values.values()))


def _number(value: Any, what: str) -> float:
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise EnvError(f"harbor: {what} is not a finite number")
    return number
