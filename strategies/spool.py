"""Replies that came before their turn, on disk until it comes."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from flwr_agent.arrays import load, save_scratch
from flwr_agent.requests import Arrays


class Spool:
    """Holds arrays in a folder of its own and hands them out by ascending client id, one in memory at a time.

    Example:
        >>> spool = Spool()
        >>> spool.put(7, {"actor/w": np.float32([1])}, weight=1.0)
        >>> [(client_id, weight) for client_id, _, weight in spool.drain()]
        [(7, 1.0)]
    """

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="flwr-agent-")
        self._weights: dict[int, float] = {}

    def put(self, client_id: int, arrays: Arrays, weight: float) -> None:
        """Keep one client's arrays."""
        save_scratch(self._file(client_id), arrays)
        self._weights[client_id] = weight

    def drain(self) -> Iterator[tuple[int, Arrays, float]]:
        """Client id, arrays and weight of everything held, which is forgotten on the way."""
        for client_id in sorted(self._weights):
            yield client_id, load(self._file(client_id)), self._weights.pop(client_id)
            self._file(client_id).unlink()

    def _file(self, client_id: int) -> Path:
        return Path(self._folder.name) / f"{client_id}.safetensors"
