"""A run as it happens, read from the ledger it writes: rounds, clients, stage, scores, time left."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, TextColumn
from rich.progress import Progress as Bar

from flwr_agent import lines as ledger_lines
from flwr_agent import manifest
from flwr_agent.errors import DataError

LEDGER = ledger_lines.FILE
ACCEPTED = "accepted"


@dataclass(frozen=True, kw_only=True, slots=True)
class Progress:
    """What a ledger says at one moment.

    Example:
        >>> Progress.of([{"kind": "client", "round": 1, "client_id": 0, "status": "accepted"}]).clients
        (0,)
    """

    round: int = 0
    """Last round whose model is saved."""
    complete: int = 0
    """The round that ended the run, saved and scored; 0 as long as something is left to do."""
    clients: tuple[int, ...] = ()
    """Clients whose answer counts in the round after it."""
    failures: tuple[str, ...] = ()
    """Requests of any round whose answer does not count, in words."""
    evaluations: tuple[Mapping[str, Any], ...] = ()
    """The scored evaluations, oldest first: `round` and `metrics`."""
    evaluating: int | None = None
    """Round whose model is being scored, None while clients train."""
    mean_round_s: float = 0.0
    """Mean wall time of a finished round with its evaluation, 0 before the first."""

    @classmethod
    def of(cls, lines: Sequence[Mapping[str, Any]]) -> Self:
        """Sum up ledger lines."""
        last = ledger_lines.saved(lines)
        rounds = [line for line in lines if line["kind"] == "round" and line["round"] <= last]
        evaluations = [line for line in lines if line["kind"] == "evaluation" and "metrics" in line]
        asked = [line for line in lines if line["kind"] == "client"]
        played = [line["seconds"] for line in evaluations if line["round"] > 0]
        trained = [sum(line["seconds"].values()) for line in rounds]
        return cls(
            round=last,
            complete=next((line["round"] for line in lines if line["kind"] == "complete"), 0),
            clients=tuple(line["client_id"] for line in asked if line["round"] > last and line["status"] == ACCEPTED),
            failures=tuple(
                f"client {line['client_id']} {line['status']} in round {line['round']}: {line['reason']}"
                for line in asked
                if line["status"] not in (ACCEPTED, "duplicate", "spare")
            ),
            evaluations=tuple(evaluations),
            evaluating=lines[-1]["round"] if lines and lines[-1]["kind"] == "evaluating" else None,
            mean_round_s=(sum(trained) + sum(played)) / len(trained) if trained else 0.0,
        )

    @classmethod
    def read(cls, path: Path) -> Self:
        """Sum up the whole lines of a ledger file, which need not exist yet and may still grow.

        Raises:
            DataError: a line is damaged; named.
        """
        try:
            return cls.of(ledger_lines.parse(path.read_bytes() if path.exists() else b""))
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            fix = "restore it from a copy, or run with fresh=true to archive the folder"
            raise DataError(path, "ledger", f"cannot be read ({error}); {fix}") from error


class Display:
    """Progress on a terminal as one live line, elsewhere as a line whenever something happened."""

    def __init__(self, console: Console, ledger: Path, *, rounds: int, clients: int, fresh: bool = False):
        """Follow `ledger`; of a `fresh` run, not the file that is there now, which the run is about to archive."""
        self._console, self._ledger, self._rounds, self._clients = console, ledger, rounds, clients
        self._archived = _file(ledger) if fresh else None
        self._bar = Bar(
            TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[note]}"), console=console
        )
        self._task = self._bar.add_task("starting", total=rounds, note="")
        self._said = ("", "")
        self._num_failures, self._is_announced = 0, False
        self._start = time.monotonic()

    @contextmanager
    def shown(self) -> Iterator[Self]:
        """Show the bar while the block runs."""
        with self._bar if self._console.is_terminal else nullcontext():
            yield self

    def say(self, stage: str) -> None:
        """Show a stage that the ledger knows nothing of."""
        self._show(stage, "", 0)

    def finished(self) -> int:
        """The last finished round."""
        return 0 if self._is_old() else Progress.read(self._ledger).round

    def update(self) -> None:
        """Show what the ledger says now."""
        if self._is_old():
            return
        if not self._is_announced and (file := self._ledger.with_name(manifest.FILE)).is_file():
            self._is_announced = True
            self._print(f"{file.read_text(encoding='utf-8').splitlines()[0]} (in full: {file})")
        seen = Progress.read(self._ledger)
        for failure in seen.failures[self._num_failures :]:
            self._print(failure)
        self._num_failures = len(seen.failures)
        self._show(self._stage(seen), self._note(seen), seen.round)

    def _is_old(self) -> bool:
        return self._archived is not None and _file(self._ledger) == self._archived

    def _print(self, line: str) -> None:
        self._console.print(line, highlight=False, markup=False, soft_wrap=True)

    def _show(self, stage: str, note: str, completed: int) -> None:
        self._bar.update(self._task, description=stage, completed=completed, note=note)
        if not self._console.is_terminal and (stage, note) != self._said:
            line = f"[{time.monotonic() - self._start:6.0f} s] {stage}" + (f" ({note})" if note else "")
            self._print(line)
            self._said = (stage, note)

    def _stage(self, seen: Progress) -> str:
        if seen.evaluating is not None:
            return f"round {seen.evaluating}/{self._rounds}: playing held-out tasks"
        if not seen.round and not seen.clients and not seen.evaluations:
            return "preparing model and tasks"
        if seen.round >= self._rounds:
            return f"round {seen.round}/{self._rounds} done"
        return f"round {seen.round + 1}/{self._rounds}: {len(seen.clients)} of {self._clients} clients answered"

    def _note(self, seen: Progress) -> str:
        notes = []
        if seen.evaluations:
            last = seen.evaluations[-1]
            if (success := last["metrics"].get("success")) is not None:
                notes.append(f"success {success:.3f} after round {last['round']}")
        if seen.mean_round_s and seen.round < self._rounds:
            notes.append(f"{to_duration(seen.mean_round_s * (self._rounds - seen.round))} left")
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


def _file(path: Path) -> tuple[int, int] | None:
    """What tells a file from the one that takes its place; None without any."""
    try:
        facts = path.stat()
    except OSError:
        return None
    return facts.st_dev, facts.st_ino
