"""What the commands need of packages that this one may not import; `__main__` brings it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from flwr_agent.config import RunConfig
from flwr_agent.requests import Arrays
from flwr_agent.validate import Strategy


@dataclass(frozen=True, kw_only=True, slots=True)
class Parts:
    """Functions of the strategies and the ServerApp."""

    load_strategy: Callable[[RunConfig], Strategy]
    """Finds the aggregation strategy of a configuration, or raises."""
    load_model: Callable[[Path, int | None], tuple[int, Arrays, str]]
    """A round of a run folder, the last finished one for None, its model, and the digest of the run's base model."""
    rebuild: Callable[[Path], list[Path]]
    """Makes the files again that a run makes from its ledger; returns them."""
