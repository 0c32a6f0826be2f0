"""Model arrays as bytes: Flower records, digests and safetensors files. Beside `codec`, no other module knows tensor bytes.

Flower is imported only where a record is built, so that a worker whose interpreter lacks Flower can load this module.
"""

from __future__ import annotations

import hashlib
import io
import math
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from flwr_agent import inplace
from flwr_agent.errors import ProtocolError
from flwr_agent.requests import Arrays

if TYPE_CHECKING:
    from flwr.app import Array, ArrayRecord

ACTOR, CRITIC = "actor/", "critic/"
"""Group prefixes of the policy's and the value model's arrays in a record."""
DTYPE = np.dtype("<f4")
"""Weights keep fp32 across every round boundary."""
STYPE = "numpy.ndarray"
"""Flower's word for the bytes of `numpy.save`."""
NUM_THREADS = min(4, os.cpu_count() or 1)
BLOCK = 1 << 16
"""Elements worked on at a time: 256 KiB of fp32 stay in a core's cache."""
_CHECKED = 16 * BLOCK
"""Elements checked at a time."""
_MAX_DIMS = 32


def prefixed(prefix: str, arrays: Mapping[str, np.ndarray]) -> Arrays:
    """Arrays under their group's prefix."""
    return {prefix + name: values for name, values in arrays.items()}


def part(arrays: Arrays, prefix: str) -> Arrays:
    """The arrays of one group, under their own names."""
    return {name.removeprefix(prefix): values for name, values in arrays.items() if name.startswith(prefix)}


def view(array: Array) -> np.ndarray:
    """The values of a Flower array without a copy: read-only, fp32, C order.

    Nothing that came over the wire is parsed: the header has to be the one that the claimed shape demands.

    Raises:
        ProtocolError: the bytes are not what `numpy.save` makes of fp32 values of that shape in C order.
    """
    shape, data = array.shape, array.data
    if array.stype != STYPE or array.dtype != DTYPE.name:
        raise ProtocolError(f"array is {array.dtype} serialised as {array.stype!r}; send float32 numpy arrays")
    if len(shape) > _MAX_DIMS or any(size < 0 for size in shape):
        raise ProtocolError(f"array claims the impossible shape {shape}")
    head = _header(shape)
    if data[: len(head)] != head or len(data) - len(head) != math.prod(shape) * DTYPE.itemsize:
        raise ProtocolError(f"array bytes are not those of a float32 .npy file of shape {shape} in C order")
    return np.frombuffer(data, DTYPE, offset=len(head)).reshape(shape)


def _header(shape: tuple[int, ...]) -> bytes:
    head = io.BytesIO()
    np.lib.format.write_array_header_1_0(head, {"descr": DTYPE.str, "fortran_order": False, "shape": shape})
    return head.getvalue()


def plain_bytes(shape: tuple[int, ...]) -> int:
    """Bytes of a Flower array of fp32 values of that shape."""
    return len(_header(shape)) + math.prod(shape) * DTYPE.itemsize


def to_array(values: np.ndarray) -> Array:
    """A Flower array of fp32 values; one copy, where `Array(ndarray)` makes three.

    Raises:
        ProtocolError: the values are not fp32.
    """
    from flwr.app import Array

    if values.dtype != DTYPE:
        raise ProtocolError(f"array is {values.dtype.name}; weights are float32 between clients and server")
    values = np.asarray(values, order="C")
    return Array(DTYPE.name, values.shape, STYPE, b"".join((_header(values.shape), values.data)))


def blank(shape: tuple[int, ...]) -> np.ndarray:
    """fp32 zeros to be filled in, which `to_record(keep_input=False)` hands over without a copy."""
    return inplace.zeros(_header(shape), shape, DTYPE)


def to_record(arrays: Arrays, *, keep_input: bool = True) -> ArrayRecord:
    """A record of these arrays in their order; `keep_input=False` empties the dict on the way, to hold one copy only."""
    from flwr.app import ArrayRecord

    record, names = ArrayRecord(), list(arrays)
    with ThreadPoolExecutor(NUM_THREADS) as pool:
        made = pool.map(lambda name: to_array(arrays[name]) if keep_input else _handed_over(arrays, name), names)
        for name, array in zip(names, made, strict=True):
            record[name] = array
    return record


def _handed_over(arrays: Arrays, name: str) -> Array:
    from flwr.app import Array

    values = arrays.pop(name)
    buffer, shape = getattr(values, "buffer", None), values.shape
    if buffer is None:
        return to_array(values)
    del values  # with it goes the last way to change the bytes, so that they need no copy
    return Array(DTYPE.name, shape, STYPE, buffer.getvalue())


def from_record(record: ArrayRecord) -> Arrays:
    """Views of a record's arrays, by name.

    Raises:
        ProtocolError: an array that is not fp32 `.npy` bytes; named.
    """
    found: Arrays = {}
    for name, array in record.items():
        try:
            found[name] = view(array)
        except ProtocolError as error:
            raise ProtocolError(f"{name}: {error}") from error
    return found


def check_like(arrays: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray]) -> None:
    """Accept only arrays with the expected names, shapes and dtype and no NaN or infinity.

    Raises:
        ProtocolError: the first difference, by name.
    """
    if missing := sorted(expected.keys() - arrays.keys()):
        raise ProtocolError(f"{len(missing)} arrays are missing, first {missing[0]!r}")
    if extra := sorted(arrays.keys() - expected.keys()):
        raise ProtocolError(f"{len(extra)} arrays were not asked for, first {extra[0]!r}")
    for name, values in arrays.items():
        if values.shape != expected[name].shape:
            raise ProtocolError(f"{name} has shape {values.shape}, not {expected[name].shape}")
        if values.dtype != DTYPE:
            raise ProtocolError(f"{name} is {values.dtype.name}, not float32")
    if (name := _first_not_finite(arrays)) is not None:
        raise ProtocolError(f"{name} holds NaN or infinity")


def _first_not_finite(arrays: Mapping[str, np.ndarray]) -> str | None:
    with ThreadPoolExecutor(NUM_THREADS) as pool:
        for name, is_fine in zip(arrays, pool.map(_is_finite, arrays.values()), strict=True):
            if not is_fine:
                return name
    return None


def _is_finite(values: np.ndarray) -> bool:
    flat = values.reshape(-1)
    with np.errstate(over="ignore", invalid="ignore"):
        for start in range(0, flat.size, _CHECKED):
            block = flat[start : start + _CHECKED]
            half = (block.size + 1) // 2
            # A finite sum of products proves every factor finite; one that is not may only have overflowed. Two halves
            # multiplied are read as two streams, at nearly twice the rate of the sum of one.
            product = np.einsum("i,i->", block[:half], block[-half:])
            if not math.isfinite(product) and not np.isfinite(block).all():
                return False
    return True


def distance(one: Mapping[str, np.ndarray], other: Mapping[str, np.ndarray]) -> float:
    """Euclidean distance of two models of the same names and shapes, summed in float64.

    Example:
        >>> distance({"w": np.float32([0, 0])}, {"w": np.float32([3, 4])})
        5.0
    """
    return math.sqrt(sum(_square(values, other[name]) for name, values in one.items()))


def _square(one: np.ndarray, other: np.ndarray) -> float:
    flat, minus, total = one.reshape(-1), other.reshape(-1), 0.0
    for start in range(0, flat.size, BLOCK):
        delta = (flat[start : start + BLOCK] - minus[start : start + BLOCK]).astype(np.float64)
        total += float(delta @ delta)
    return total


def digest(arrays: Mapping[str, np.ndarray]) -> str:
    """SHA-256 over names, shapes and values, whatever the order of the mapping.

    Example:
        >>> a, b = np.zeros(2, "f4"), np.ones(2, "f4")
        >>> digest({"actor/a": a, "actor/b": b}) == digest({"actor/b": b, "actor/a": a})
        True
    """
    names = sorted(arrays)
    with ThreadPoolExecutor(NUM_THREADS) as pool:
        parts = pool.map(lambda name: hashlib.sha256(np.asarray(arrays[name], order="C").data).digest(), names)
        total = hashlib.sha256()
        for name, part in zip(names, parts, strict=True):
            total.update(f"{name}\0{arrays[name].dtype.str}\0{arrays[name].shape}\0".encode() + part)
    return total.hexdigest()


def save(path: Path, arrays: Arrays, metadata: dict[str, str] | None = None) -> None:
    """Write a safetensors file that is whole or absent, also after a power cut."""
    tmp = path.with_name(path.name + ".tmp")
    save_scratch(tmp, arrays, metadata)
    replace(tmp, path)


def save_scratch(path: Path, arrays: Arrays, metadata: dict[str, str] | None = None) -> None:
    """Write a safetensors file that nobody needs after this process has ended."""
    from safetensors.numpy import save_file

    save_file({name: np.asarray(values, order="C") for name, values in arrays.items()}, path, metadata)


def load(path: Path) -> Arrays:
    """The arrays of a safetensors file."""
    from safetensors.numpy import load_file

    return load_file(path)


def replace(tmp: Path, path: Path) -> None:
    """Give `tmp` (a file or a folder) its final name after its bytes have reached the disk."""
    for item in [tmp, *tmp.rglob("*")] if tmp.is_dir() else [tmp]:
        _sync(item)
    tmp.replace(path)
    _sync(path.parent)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
