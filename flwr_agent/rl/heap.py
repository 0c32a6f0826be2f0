"""Memory that the C library keeps after it was freed."""

from __future__ import annotations

import ctypes


def trim() -> None:
    """Give freed memory back to the system; nothing happens where the C library is not glibc."""
    if release := getattr(ctypes.CDLL(None), "malloc_trim", None):
        release(0)
