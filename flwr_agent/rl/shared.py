"""Folders in shared memory for tensors on their way between processes; what killed processes leave is swept."""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PREFIX = "flwr-agent-tensors-"
YOUNG_S = 60.0
"""Seconds that a new folder may take until its maker holds it."""


@contextmanager
def folder() -> Iterator[Path]:
    """A folder in shared memory where there is some, gone after the block; with those that killed processes have left."""
    memory = Path("/dev/shm")  # noqa: S108
    place = memory if memory.is_dir() else Path(tempfile.gettempdir())
    sweep(place)
    with tempfile.TemporaryDirectory(prefix=PREFIX, dir=place) as made, held(Path(made)):
        yield Path(made)


def sweep(place: Path) -> None:
    """Remove this user's folders that no process holds."""
    for found in place.glob(f"{PREFIX}*"):
        with suppress(OSError):  # somebody else's, held, or just removed
            facts = found.lstat()
            is_old = time.time() - facts.st_mtime > YOUNG_S
            if stat.S_ISDIR(facts.st_mode) and facts.st_uid == os.getuid() and is_old:
                with held(found, fcntl.LOCK_EX | fcntl.LOCK_NB):
                    shutil.rmtree(found)


@contextmanager
def held(made: Path, how: int = fcntl.LOCK_SH) -> Iterator[None]:
    """A lock that ends with its process however that ends, in whatever container it is.

    Raises:
        OSError: another process holds it otherwise.
    """
    handle = os.open(made, os.O_RDONLY)
    try:
        fcntl.flock(handle, how)
        yield
    finally:
        os.close(handle)
