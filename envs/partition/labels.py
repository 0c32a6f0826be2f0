"""Success labels: which tasks a reference policy solved, as read from a trajectories file."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from envs.base import Task
from flwr_agent.errors import ConfigError, DataError

log = logging.getLogger(__name__)


def read_labels(path: Path | str) -> Mapping[str, bool]:
    """Task id -> whether the reference policy solved it; the last entry of an id counts.

    The file is JSON: `{"trajectories": [{"task_info": {"task_id": str}, "traj_info": {"success": bool}}, …]}`.

    Raises:
        DataError: if the file is missing, not JSON, or an entry lacks a field or has one of another type.
    """
    file = Path(path)
    try:
        stamp = file.stat()
    except OSError as error:
        raise DataError(path, "file", f"cannot be read ({error.strerror}); set partition.trajectories_file") from error
    return _read(file, stamp.st_mtime_ns, stamp.st_size)


@lru_cache(maxsize=4)
def _read(file: Path, _mtime_ns: int, _size: int) -> Mapping[str, bool]:
    try:
        content: Any = json.loads(file.read_bytes())
    except ValueError as error:
        raise DataError(file, "content", f"is not JSON ({error})") from error
    entries: Any = cast(dict[str, Any], content).get("trajectories") if isinstance(content, dict) else None
    if not isinstance(entries, list):
        raise DataError(file, "trajectories", "must be a list of trajectories")
    return dict(_entry(file, number, entry) for number, entry in enumerate(cast(list[Any], entries)))


def _entry(file: Path, number: int, entry: Any) -> tuple[str, bool]:
    try:
        task_id, success = entry["task_info"]["task_id"], entry["traj_info"]["success"]
    except (KeyError, TypeError) as error:
        raise DataError(file, f"trajectories[{number}]", "needs task_info.task_id and traj_info.success") from error
    if not isinstance(task_id, str):
        raise DataError(file, f"trajectories[{number}].task_info.task_id", "must be a string")
    if not isinstance(success, bool):
        raise DataError(file, f"trajectories[{number}].traj_info.success", "must be true or false")
    return task_id, success


def check_labels(labels: Mapping[str, bool], tasks: Sequence[Task], key: str, path: object) -> None:
    """Refuse labels most of which are of other tasks.

    Raises:
        ConfigError: naming the configuration key that the file came by.
    """
    known = sum(task.id in labels for task in tasks)
    if known < max(1, len(labels) / 2):
        fix = (
            f"only {known} of its {len(labels)} labels are of the {len(tasks)} training tasks; it is of another split, "
            "environment or catalogue"
        )
        raise ConfigError(key, str(path), fix)


def easy_tasks(tasks: Sequence[Task], labels: Mapping[str, bool]) -> NDArray[np.bool_]:
    """`[n]` whether each task counts as easy; a task without a label counts as hard, and a warning says how many."""
    missing = sum(task.id not in labels for task in tasks)
    if missing:
        hint = "; the labels are stale or of another split" if missing > len(tasks) / 2 else ""
        log.warning("%d of %d tasks have no success label and count as hard%s", missing, len(tasks), hint)
    return np.array([labels.get(task.id, False) for task in tasks], dtype=np.bool_)
