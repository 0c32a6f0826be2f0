"""A run as it happens, read from the ledger it writes: rounds, clients, stage, scores, time left."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

LEDGER = "ledger.jsonl"


@dataclass(slots=True)
class Ledger:
    """What the complete lines of a growing ledger say; a line still being written waits for the next look."""

    path: Path
    """The file; it need not exist yet."""
    round: int = 0
    """Last finished round."""
    clients: list[int] = field(default_factory=list)
    """Clients that answered in the round after it."""
    scores: dict[int, float] = field(default_factory=dict)
    """Round -> held-out success."""
    round_seconds: list[float] = field(default_factory=list)
    """Wall time of each finished round."""
    num_lines: int = 0
    """Lines seen so far."""
    _offset: int = 0

    @property
    def mean_round_s(self) -> float:
        """Mean wall time of the finished rounds."""
        return sum(self.round_seconds) / len(self.round_seconds)

    def read(self) -> Self:
        """Take in what was written since the last look; a ledger that was archived meanwhile starts over."""
        size = self.path.stat().st_size if self.path.is_file() else 0
        if size < self._offset:
            self.__init__(self.path)
        if size > self._offset:
            with self.path.open("rb") as file:
                file.seek(self._offset)
                lines = file.read(size - self._offset).splitlines(keepends=True)
            for line in lines:
                if line.endswith(b"\n"):
                    self._offset += len(line)
                    self._take(json.loads(line))
        return self

    def _take(self, entry: dict[str, Any]) -> None:
        self.num_lines += 1
        match entry.get("kind"):
            case "client":
                self.clients.append(entry["client_id"])
            case "round":
                self.round = entry["round"]
                self.clients = []
                self.round_seconds.append(sum(entry["seconds"].values()))
            case "evaluation":
                self.scores[entry["round"]] = entry["metrics"]["success"]


class Display:
    """Progress on a terminal as one live line, elsewhere as a line whenever something happened."""

    def __init__(self, console: Console, ledger: Ledger, *, rounds: int, clients: int):
        self._console, self._ledger, self._rounds, self._clients = console, ledger, rounds, clients
        self._bar = Progress(
            TextColumn("[bold]{task.description}"), BarColumn(), TextColumn("{task.fields[note]}"), console=console
        )
        self._task = self._bar.add_task("starting", total=rounds, note="")
        self._said = ""
        self._start = time.monotonic()

    @contextmanager
    def shown(self) -> Iterator[Self]:
        """Show the bar while the block runs."""
        if self._console.is_terminal:
            with self._bar:
                yield self
        else:
            yield self

    def update(self, stage: str = "") -> None:
        """Look at the ledger; `stage` is said as long as it says nothing itself."""
        ledger = self._ledger.read()
        text = stage if stage and not ledger.num_lines else self._stage()
        note = self._note()
        self._bar.update(self._task, description=text, completed=ledger.round, note=note)
        said = f"{text} {note}".strip()
        if not self._console.is_terminal and text != self._said:
            self._console.print(f"[{time.monotonic() - self._start:6.0f} s] {said}", highlight=False, markup=False)
            self._said = text

    def _stage(self) -> str:
        ledger = self._ledger
        if ledger.round >= self._rounds:
            return f"round {ledger.round}/{self._rounds} done"
        if len(ledger.clients) >= self._clients:
            return f"round {ledger.round + 1}/{self._rounds}: averaging"
        return f"round {ledger.round + 1}/{self._rounds}: {len(ledger.clients)} of {self._clients} clients answered"

    def _note(self) -> str:
        ledger, notes = self._ledger, []
        if ledger.scores:
            last = max(ledger.scores)
            notes.append(f"success {ledger.scores[last]:.3f} after round {last}")
        if ledger.round_seconds and ledger.round < self._rounds:
            notes.append(f"{to_duration(ledger.mean_round_s * (self._rounds - ledger.round))} left")
        return ", ".join(notes)


def to_duration(seconds: float) -> str:
    """Seconds in words.

    Example:
        >>> to_duration(3700)
        '1 h 2 min'
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"
