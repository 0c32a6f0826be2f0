"""The lines of a run's `ledger.jsonl`, read back: whole ones only, and of a shape that readers can rely on."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from flwr_agent.errors import DataError

VERSION = 1
FILE = "ledger.jsonl"
Line = dict[str, Any]
FIX = "restore it from a copy, or leave this run out"
_TYPES = {"kind": str, "round": int, "client_id": int, "status": str, "metrics": dict, "outcomes": dict}
_NEEDED = {
    "client": ("round", "client_id", "status", "metrics"),
    "round": ("round", "clients", "metrics", "seconds"),
    "evaluation": ("round", "metrics", "outcomes"),
    "resume": ("round",),
    "checkpoint": ("round",),
}
"""Kind of line -> fields without which it says nothing; other kinds are free."""


def parse(data: bytes) -> list[Line]:
    r"""All whole lines, oldest first; what follows the last line end is still being written.

    Raises:
        ValueError: names the first line that is none of a ledger.

    Example:
        >>> parse(b'{"kind": "round", "round": 1}\n{"kind": "cli')
        [{'kind': 'round', 'round': 1}]
    """
    whole, _, _ = data.rpartition(b"\n")
    return [_parsed(number, text) for number, text in enumerate(whole.splitlines(), 1)]


def saved(lines: Iterable[Mapping[str, Any]]) -> int:
    """The last round whose model is on disk, 0 before the first: its own line comes before it is saved.

    Example:
        >>> saved([{"kind": "round", "round": 1}, {"kind": "checkpoint", "round": 1}, {"kind": "round", "round": 2}])
        1
    """
    return max((line["round"] for line in lines if line["kind"] in ("checkpoint", "resume", "complete")), default=0)


def read(path: Path) -> list[Line]:
    """The lines of a ledger file, which may still grow; nothing is written.

    Raises:
        DataError: there is no such file, it is of another version, or a line is damaged; named.
    """
    try:
        lines = parse(path.read_bytes())
    except FileNotFoundError:
        raise DataError(path, "file", "is missing; give the folder of a run") from None
    except (OSError, ValueError) as error:
        raise DataError(path, "ledger", f"cannot be read ({error}); {FIX}") from error
    if not lines or lines[0]["kind"] != "ledger":
        raise DataError(path, "kind", "the first line does not open a ledger; give the folder of a run")
    if (version := lines[0].get("version")) != VERSION:
        raise DataError(path, "version", f"is {version}, this flwr-agent reads {VERSION}; use the one that wrote it")
    for number, line in enumerate(lines, 1):
        if missing := [name for name in _NEEDED.get(line["kind"], ()) if name not in line]:
            raise DataError(path, f"line {number}", f"of kind {line['kind']} has no {missing[0]}; {FIX}")
    return lines


def _parsed(number: int, text: bytes) -> Line:
    try:
        line = json.loads(text, parse_constant=_refused)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"line {number}: {error}") from None
    if not isinstance(line, dict) or "kind" not in line:
        raise ValueError(f"line {number} is no ledger line")
    for name, type_ in _TYPES.items():
        if name in line and not isinstance(line[name], type_):
            raise ValueError(f"line {number}: {name} is {str(line[name])[:40]!r}, not of type {type_.__name__}")
    return line


def _refused(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")
