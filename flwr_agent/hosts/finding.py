"""What a look at a host has found, and the way out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from flwr_agent.errors import AgentError


class Verdict(StrEnum):
    """What a finding means for joining a run."""

    OK = "ok"
    """Fit."""
    WARN = "warn"
    """Works, but perhaps not as meant."""
    FAIL = "fail"
    """A run would fail here."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at.

    Example:
        >>> str(Finding("ports", Verdict.FAIL, "9094 is taken", "give another --port"))
        'fail  ports: 9094 is taken; give another --port'
    """

    name: str
    verdict: Verdict
    found: str
    fix: str = ""
    """The way out, unless it is fit."""

    def to_dict(self) -> dict[str, str]:
        """For machines."""
        return {"name": self.name, "verdict": str(self.verdict), "found": self.found, "fix": self.fix}

    def __str__(self) -> str:
        return f"{self.verdict:<4}  {self.name}: {self.found}" + (f"; {self.fix}" if self.fix else "")


def checked(name: str, found: str, check: Callable[[], None]) -> Finding:
    """Fit, unless `check` refuses; its error names the way out."""
    try:
        check()
    except AgentError as error:
        return Finding(name, Verdict.FAIL, str(error))
    return Finding(name, Verdict.OK, found)
