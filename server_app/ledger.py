"""The run's ledger: one JSON line per client and round, per round and per evaluation, on disk before the run goes on."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from flwr_agent.errors import ResumeError
from flwr_agent.lines import FILE, VERSION, Line, parse


class Ledger:
    """Appends lines to `ledger.jsonl`; a line is whole on disk when `append` returns.

    Example:
        >>> ledger = Ledger(tmp_path)
        >>> ledger.append("evaluation", round=0, metrics={"success": 0.25})
        >>> ledger.lines()[-1]["kind"]
        'evaluation'
    """

    def __init__(self, folder: Path) -> None:
        """Open the ledger of a run folder, and start it if there is none.

        Raises:
            ResumeError: it was written by another version.
        """
        self.path = folder / FILE
        self.tell: Callable[[Line], None] = lambda _: None
        """Told of each line once it is on disk."""
        if not self.lines():
            self.path.write_bytes(b"")
            self.append("ledger", version=VERSION)
        version = self.lines()[0].get("version")
        if version != VERSION:
            raise ResumeError(
                f"{self.path} has ledger version {version}, this flwr-agent writes {VERSION}; set fresh=true to archive it"
            )

    @property
    def position(self) -> int:
        """Bytes written so far."""
        return self.path.stat().st_size

    def append(self, kind: str, **facts: Any) -> None:
        """Add one line."""
        line: Line = {"kind": kind, **_plain(facts)}
        with self.path.open("ab") as file:
            file.write((json.dumps(line, allow_nan=False) + "\n").encode())
            file.flush()
            os.fsync(file.fileno())
        self.tell(line)

    def lines(self) -> list[Line]:
        """All whole lines, oldest first."""
        try:
            return parse(self.path.read_bytes()) if self.path.exists() else []
        except (ValueError, OSError) as error:
            raise ResumeError(
                f"{self.path} is damaged ({error}); restore it, or set fresh=true to archive the run"
            ) from error

    def rewind(self, position: int) -> list[Line]:
        """Cut off everything after `position` and return its whole lines.

        Raises:
            ResumeError: the file is shorter than that, or no line ends there.
        """
        if position > self.position:
            raise ResumeError(
                f"{self.path} is shorter than the checkpoint says; restore it, or set fresh=true to archive the run"
            )
        data = self.path.read_bytes()
        if data[position - 1 : position] != b"\n":
            raise ResumeError(
                f"{self.path} is not what its checkpoint was written beside: no line ends at byte {position}; restore "
                "it, or set fresh=true to archive the run"
            )
        tail = parse(data[position:])
        with self.path.open("r+b") as file:
            file.truncate(position)
            os.fsync(file.fileno())
        return tail


def _plain(value: Any) -> Any:
    """JSON has no NaN and no infinity; they become null."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
