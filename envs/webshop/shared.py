"""Large indexes on disk: the first process that asks for one builds it, all processes of the machine map it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
from filelock import FileLock

from envs.webshop.bm25 import Dialect, Index

FOLDER = Path("~/.cache/flwr_agent/webshop")
"""May be deleted whenever no process is running."""
ARRAYS = ("starts", "documents", "impacts")


def mapped(key: str, build: Callable[[], Index], dialect: Dialect) -> Index:
    """The index called `key`; `build` is called if no process has finished it before, while others wait.

    Its arrays are pages of files, which the processes that read them share; only the vocabulary is each one's own.
    """
    folder = FOLDER.expanduser() / key
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{folder}.lock"):
        if not folder.exists():
            unfinished = folder.with_suffix(".tmp")
            shutil.rmtree(unfinished, ignore_errors=True)
            unfinished.mkdir()
            _save(build(), unfinished)
            unfinished.rename(folder)
    return _load(folder, dialect)


def _save(index: Index, folder: Path) -> None:
    for name in ARRAYS:
        np.save(folder / f"{name}.npy", getattr(index, name), allow_pickle=False)
    facts = {"num_documents": index.num_documents, "terms": list(index.vocabulary)}
    (folder / "facts.json").write_text(json.dumps(facts), encoding="utf-8")


def _load(folder: Path, dialect: Dialect) -> Index:
    facts = json.loads((folder / "facts.json").read_text(encoding="utf-8"))
    arrays = {name: np.asarray(np.load(folder / f"{name}.npy", mmap_mode="r")) for name in ARRAYS}
    vocabulary = {term: row for row, term in enumerate(facts["terms"])}
    return Index(dialect, facts["num_documents"], vocabulary, **arrays)
