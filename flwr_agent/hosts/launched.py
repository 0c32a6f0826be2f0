"""`launch.json`: how the run in a folder was started, and who follows it, so that other commands find it."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import UnionType
from typing import Any, Self

import psutil

from flwr_agent.errors import ResumeError

FILE, LOGS = "launch.json", "logs"
KEPT = (FILE, LOGS)
"""What a run folder holds that the launcher writes; it is no part of the run's state."""
SIMULATION, DEPLOYMENT, SUPERLINK = "simulation", "deployment", "superlink"


@dataclass(frozen=True, kw_only=True, slots=True)
class Where:
    """Which Flower runs it.

    Example:
        >>> Where(kind=SUPERLINK, superlink="superlink.example.org:8000", root_certificates="/etc/flwr-agent/ca.crt")
    """

    kind: str = SIMULATION
    """`simulation` and `deployment` start a SuperLink of the run's own, `superlink` uses one that runs."""
    superlink: str = ""
    """Its `HOST:PORT`, or the name of a connection in the user's Flower configuration."""
    root_certificates: str = ""
    """File with the certificate of the authority that signed the SuperLink's; empty trusts those of the system."""
    federation: str = ""
    """Flower federation at that SuperLink; empty is its default one."""
    in_memory: bool = False
    """In a deployment of the run's own the SuperLink has no database."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Launch:
    """One start of a run."""

    where: Where
    """Which Flower runs it."""
    settings: Mapping[str, Any]
    """Dotted key -> value: what the preset and the overrides set."""
    run_id: int
    """Flower's number for it."""
    pid: int = field(default_factory=lambda: psutil.Process().pid)
    """The process that follows it."""
    created: float = field(default_factory=lambda: psutil.Process().create_time())
    """When that process started, because process ids come round again."""
    folder: str = field(default="", compare=False)
    """The run folder it was written into; empty before, and in a file that does not say."""

    def write(self, folder: Path) -> None:
        """Write it into a run folder, in place of the last one.

        Raises:
            ResumeError: another process follows that one.
            OSError: names the file, of which nothing is left.
        """
        check_free(folder)
        facts = {**dataclasses.asdict(self), "folder": str(folder.resolve())}
        tmp = folder / (FILE + ".tmp")
        try:
            tmp.write_text(json.dumps(facts, indent=1), encoding="utf-8")
            tmp.replace(folder / FILE)
        except OSError as error:
            tmp.unlink(missing_ok=True)
            raise OSError(error.errno, error.strerror, str(folder / FILE)) from error

    @classmethod
    def read(cls, folder: Path) -> Self:
        """The last start of the run in a folder.

        Raises:
            ResumeError: it was not started by `flwr-agent run`, or the file is damaged.
        """
        file = folder / FILE
        if not file.is_file():
            raise ResumeError(f"{folder} holds no {FILE}; give the run folder of a run that `flwr-agent run` started")
        try:
            facts = json.loads(file.read_text(encoding="utf-8"))
            _check_types(facts)
            return cls(**{**facts, "where": Where(**facts["where"])})
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise ResumeError(f"{file} is damaged ({error}); start the run by its command instead") from error

    def is_of(self, folder: Path) -> bool:
        """Whether it started the run in this folder; a copy holds the file of a run that is elsewhere."""
        return self.folder in ("", str(folder.resolve()))

    def follower(self) -> psutil.Process | None:
        """The process that follows the run, if it is alive; one that has ended and waits for its parent is not."""
        try:
            process = psutil.Process(self.pid)
            is_it = abs(process.create_time() - self.created) < 1.0
            return process if is_it and process.status() != psutil.STATUS_ZOMBIE else None
        except psutil.NoSuchProcess:
            return None


def check_free(folder: Path) -> None:
    """Refuse a folder whose run another process follows.

    Raises:
        ResumeError: names the process.
    """
    try:
        last = Launch.read(folder)
    except ResumeError:
        return  # none, or one that says nothing
    if last.is_of(folder) and last.pid != psutil.Process().pid and last.follower():
        raise ResumeError(
            f"{folder} is running (process {last.pid}); stop it first, wait, or choose another output_dir"
        )


def _check_types(facts: Mapping[str, Any]) -> None:
    """A file without the process would be taken for one of this very process."""
    for name, types in {"settings": Mapping, "run_id": int, "pid": int, "created": int | float}.items():
        _check_type(name, facts[name], types)
    _check_type("folder", facts.get("folder", ""), str)
    if facts["pid"] <= 0:
        raise ValueError(f"pid is {facts['pid']}")
    for name, value in facts["where"].items():
        _check_type(f"where.{name}", value, bool if name == "in_memory" else str)
    if (kind := facts["where"].get("kind", SIMULATION)) not in (SIMULATION, DEPLOYMENT, SUPERLINK):
        raise ValueError(f"where.kind is {kind!r}")


def _check_type(name: str, value: object, types: type | UnionType) -> None:
    if not isinstance(value, types):
        raise TypeError(f"{name} is {value!r}")
