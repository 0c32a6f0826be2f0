"""Arrays made inside the bytes that they will be sent as, so that a finished model is handed over and not copied.

New memory is the dearest part of a copy: a page of it costs more to touch for the first time than to read many times.
"""

from __future__ import annotations

import ctypes
import io
import math
import mmap

import numpy as np

_LARGE = 1 << 22
"""Bytes from which NumPy, too, asks for large pages."""


class InPlace(np.ndarray):
    """Values that lie in a buffer of bytes. Its slices, and what is computed from it, are ordinary arrays."""

    buffer: io.BytesIO | None = None
    """What holds them, behind their head; None for slices and results."""


def zeros(head: bytes, shape: tuple[int, ...], dtype: np.dtype) -> InPlace:
    """Zeros that follow `head` in `buffer`, whose `getvalue` is free once the array is gone and a copy while it lives.

    Example:
        >>> values = zeros(b"head", (2,), np.dtype("u1"))
        >>> values[:] = 65, 66
        >>> buffer = values.buffer
        >>> del values
        >>> buffer.getvalue()
        b'headAB'
    """
    buffer = io.BytesIO(bytes(len(head) + math.prod(shape) * dtype.itemsize))
    buffer.write(head)
    whole = np.frombuffer(buffer.getbuffer(), np.uint8)
    _ask_for_large_pages(whole)
    values = whole[len(head) :].view(dtype).reshape(shape).view(InPlace)
    values.buffer = buffer
    return values


def _ask_for_large_pages(whole: np.ndarray) -> None:
    advice = getattr(mmap, "MADV_HUGEPAGE", None)
    if advice is None or whole.size < _LARGE:
        return
    start = -(-whole.ctypes.data // mmap.PAGESIZE) * mmap.PAGESIZE
    size = (whole.ctypes.data + whole.size - start) // mmap.PAGESIZE * mmap.PAGESIZE
    ctypes.CDLL(None).madvise(ctypes.c_void_p(start), ctypes.c_size_t(size), advice)
