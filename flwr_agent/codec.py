"""Shorter forms of an fp32 array on the wire: bf16, and int8 with a scale per block.

They are for differences of weights: a weight itself would lose most of a small step to rounding.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from flwr_agent.errors import ProtocolError
from flwr_agent.wire import BF16, INT8

if TYPE_CHECKING:
    from flwr.app import Array

GROUP = 256
"""Values that share one int8 scale."""
LARGEST = 127
_CHUNK = 256 * GROUP
"""Values worked on at a time."""
DTYPES = {BF16: "bfloat16", INT8: "int8"}
"""Compression -> the dtype that an array of it claims."""


def encode(values: np.ndarray, compression: str, draw: np.random.Generator) -> Array:
    """A Flower array that `decode` reads.

    `bf16` rounds to the nearest, ties to even. `int8` divides each group of 256 values by its largest and rounds at
    random, up with the probability that makes the expectation exact (Alistarh et al., NeurIPS 2017).

    Raises:
        ProtocolError: a value is NaN or infinite.
    """
    from flwr.app import Array

    if not np.isfinite(values).all():
        raise ProtocolError("holds NaN or infinity")
    flat = np.asarray(values, order="C").reshape(-1)
    data = _to_bf16(flat).tobytes() if compression == BF16 else _to_int8(flat, draw)
    return Array(DTYPES[compression], values.shape, compression, data)


def decode(array: Array, compression: str) -> np.ndarray:
    """The fp32 values of an array that `encode` has made.

    Raises:
        ProtocolError: it is something else.
    """
    shape, data = array.shape, array.data
    size = math.prod(shape)
    if (array.stype, array.dtype) != (compression, DTYPES[compression]) or any(length < 0 for length in shape):
        raise ProtocolError(f"array is {array.dtype} serialised as {array.stype!r}, not {compression}")
    if len(data) != num_bytes(size, compression):
        raise ProtocolError(f"array has {len(data)} bytes, which {compression} of shape {shape} has not")
    if compression == BF16:
        return (np.frombuffer(data, "<u2").astype("<u4") << 16).view("<f4").reshape(shape)
    scales = np.frombuffer(data, "<f4", _num_groups(size))
    levels = np.frombuffer(data, np.int8, size, scales.nbytes)
    values = levels.astype("<f4")
    for start, groups in _groups(values):
        groups *= scales[start : start + len(groups), None]
    return values.reshape(shape)


def num_bytes(size: int, compression: str) -> int:
    """Bytes of `size` values."""
    return 2 * size if compression == BF16 else 4 * _num_groups(size) + size


def _num_groups(size: int) -> int:
    return -(-size // GROUP)


def _to_bf16(flat: np.ndarray) -> np.ndarray:
    bits = flat.view("<u4")
    return ((bits + (0x7FFF + ((bits >> 16) & 1))) >> 16).astype("<u2")


def _to_int8(flat: np.ndarray, draw: np.random.Generator) -> bytes:
    scales = np.zeros(_num_groups(flat.size), "<f4")
    levels = np.empty(flat.size, np.int8)
    for (start, groups), (_, into) in zip(_groups(flat), _groups(levels), strict=True):
        scale = np.abs(groups).max(axis=1) / np.float32(LARGEST)
        scales[start : start + len(scale)] = scale
        steps = np.divide(groups, scale[:, None], out=np.zeros_like(groups), where=scale[:, None] > 0)
        rounded = np.floor(steps + draw.random(steps.shape, dtype=np.float32))
        into[:] = np.clip(rounded, -LARGEST, LARGEST)
    return scales.tobytes() + levels.tobytes()


def _groups(flat: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Number of the first group and views `[groups, 256]`; the last group may be shorter and comes alone."""
    whole = flat.size - flat.size % GROUP
    for start in range(0, whole, _CHUNK):
        yield start // GROUP, flat[start : min(start + _CHUNK, whole)].reshape(-1, GROUP)
    if whole < flat.size:
        yield whole // GROUP, flat[whole:].reshape(1, -1)
