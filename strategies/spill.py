"""Replies of a round that wait on disk until all are there."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from flwr_agent.arrays import DTYPE
from flwr_agent.requests import Arrays


class Spill:
    """Keeps each reply in a file of its own, then maps them all and hands out what `combine` makes of them.

    The files are in the system's folder for temporary ones (`TMPDIR`): one model a client.

    Example:
        >>> spill = Spill(lambda replies: np.median(np.stack(replies), axis=0))
        >>> for value in (1.0, 9.0, 2.0):
        ...     spill.add({"w": np.float32([value])}, weight=1.0)
        >>> spill.value()
        {'w': array([2.], dtype=float32)}
    """

    def __init__(self, combine: Callable[[Sequence[np.ndarray]], np.ndarray]) -> None:
        self._combine = combine
        self._folder = tempfile.TemporaryDirectory(prefix="fa-replies-", ignore_cleanup_errors=True)
        self._files: list[Path] = []
        self._shapes: dict[str, tuple[int, ...]] = {}

    def add(self, arrays: Mapping[str, np.ndarray], weight: float) -> None:  # noqa: ARG002 - all count alike
        """Write a reply of the names and shapes of the first one."""
        self._shapes = self._shapes or {name: values.shape for name, values in arrays.items()}
        path = Path(self._folder.name) / f"{len(self._files)}.f4"
        with path.open("wb") as file:
            for name in self._shapes:
                file.write(np.asarray(arrays[name], order="C").data)
        self._files.append(path)

    def value(self) -> Arrays:
        """What the replies make together; their files are gone afterwards."""
        flat = self._combine([np.memmap(path, DTYPE, "r") for path in self._files])
        self._folder.cleanup()
        found: Arrays = {}
        for name, shape in self._shapes.items():
            size = int(np.prod(shape))
            found[name], flat = flat[:size].reshape(shape), flat[size:]
        return found
