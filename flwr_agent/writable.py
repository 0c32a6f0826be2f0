"""Places that are to be written: refused before the work that fills them, and filled at once or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def why_no_file(path: Path) -> str:
    """Why no file can be written there, empty if one can; nothing is made.

    Example:
        >>> why_no_file(Path("/proc/version/x"))
        '/proc/version is a file'
    """
    try:
        if path.is_dir():
            return f"{path} is a folder"
        if path.exists():
            return "" if os.access(path, os.W_OK) else f"{path} cannot be written"
    except OSError as error:
        return f"{path}: {error.strerror}"
    return why_no_folder(path.parent)


def why_no_folder(path: Path) -> str:
    """Why no folder can be made or filled there, empty if one can; nothing is made."""
    try:
        place = next(folder for folder in (path, *path.absolute().parents) if folder.exists())
    except OSError as error:
        return f"{path}: {error.strerror}"
    if not place.is_dir():
        return f"{place} is a file"
    try:
        with tempfile.TemporaryFile(dir=place):  # it has no name; permissions alone say nothing of /proc
            return ""
    except OSError as error:
        return f"{place} cannot be written ({error.strerror})"


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """A new place that becomes `path`, a file or an empty folder, once everything is in it; else it is dropped.

    Example:
        >>> with whole(Path("labels.json")) as unfinished:
        ...     unfinished.write_text("{}")
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".unfinished-", dir=path.parent) as scratch:
        unfinished = Path(scratch) / path.name
        yield unfinished
        unfinished.replace(path)
