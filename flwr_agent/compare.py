"""How far apart two models are, tensor by tensor."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open

from flwr_agent.errors import DataError

ROUND = "round-*/model.safetensors"
"""A finished round in a run folder."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """One tensor of two models.

    Example:
        >>> Difference(name="w", relative=0.0, largest=0.0).is_within(0.0)
        True
    """

    name: str
    relative: float = math.inf
    """||a - b|| / ||a||, or ||b|| where a is zero."""
    largest: float = math.inf
    """max |a - b|."""
    problem: str = ""
    """Why the two cannot be subtracted; empty if they can."""

    def is_within(self, tolerance: float) -> bool:
        """Whether the relative distance is known and at most that."""
        return not self.problem and self.relative <= tolerance


def compare(first: Path, second: Path) -> list[Difference]:
    """All tensors of two models, by name; one at a time is in memory.

    Args:
        first: a safetensors file, a folder of them (a checkpoint, a model), or a run folder, of which the last round
            counts.
        second: the other.

    Raises:
        DataError: a file cannot be read, or there is no tensor in it.
    """
    a, b = _homes(first), _homes(second)
    return [_difference(name, a.get(name), b.get(name)) for name in sorted(a.keys() | b.keys())]


def _difference(name: str, a: Path | None, b: Path | None) -> Difference:
    if a is None or b is None:
        return Difference(name=name, problem=f"only in the {'first' if b is None else 'second'}")
    one, other = _read(a, name), _read(b, name)
    if one.shape != other.shape:
        return Difference(name=name, problem=f"{one.shape} against {other.shape}")
    delta = one - other
    if not np.isfinite(delta).all():
        return Difference(name=name, problem="not finite")
    distance, norm = float(np.linalg.norm(delta)), float(np.linalg.norm(one))
    return Difference(name=name, relative=distance / norm if norm else distance, largest=_largest(delta))


def _largest(values: np.ndarray) -> float:
    return float(np.abs(values).max(initial=0.0))


def _homes(path: Path) -> dict[str, Path]:
    """Tensor name -> the file that holds it."""
    homes = {name: file for file in _files(path) for name in _names(file)}
    if not homes:
        raise DataError(path, "tensors", "it holds none, so that there is nothing to compare; give a model")
    return homes


def _files(path: Path) -> Sequence[Path]:
    if path.is_file():
        return [path]
    found = sorted(path.glob("*.safetensors")) or sorted(path.glob(ROUND))[-1:]
    if not found:
        fix = "no *.safetensors there; give a file, a checkpoint, a model folder or a run folder"
        raise DataError(path, "folder", fix)
    return found


def _names(file: Path) -> list[str]:
    with _opened(file) as tensors:
        return list(tensors.keys())


def _read(file: Path, name: str) -> np.ndarray:
    """A tensor in float64, flat where it is a scalar."""
    with _opened(file) as tensors:
        tensor = tensors.get_tensor(name)
    values = tensor.double().numpy() if hasattr(tensor, "double") else tensor.astype(np.float64)
    return np.atleast_1d(values)


def _opened(file: Path) -> Any:
    """Through torch where it is installed, because NumPy has no bfloat16."""
    try:
        return safe_open(file, framework="pt" if importlib.util.find_spec("torch") else "numpy")
    except (SafetensorError, OSError) as error:
        raise DataError(file, "safetensors", f"cannot be read ({error})") from error
