"""Task lists as Hugging Face datasets, and datasets as task lists; needs the package `datasets`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from envs.base import Task
from flwr_agent.errors import DataError

if TYPE_CHECKING:
    from datasets import Dataset

META = "meta"
"""Column with what a task holds, as JSON."""


def to_dataset(tasks: Iterable[Task]) -> Dataset:
    """A dataset with the columns `id`, `split`, `category` and `meta` (JSON), in the order of the tasks.

    Example:
        >>> to_dataset([Task("t-0", "train", {"category": "easy"})])[0]["category"]
        'easy'
    """
    from datasets import Dataset

    rows = [
        {"id": t.id, "split": t.split, "category": str(t.meta.get("category", "")), META: json.dumps(dict(t.meta))}
        for t in tasks
    ]
    return Dataset.from_list(rows)


def from_dataset(dataset: Iterable[Mapping[str, Any]], *, split: str, id_column: str = "id") -> list[Task]:
    """The tasks of a dataset, one a row, all of one split; what stands in the other columns goes into `meta`.

    A column `meta` with JSON, as `to_dataset` writes it, is what a task holds, and all of it.

    Args:
        dataset: a `datasets.Dataset`, or any rows.
        split: split of all tasks.
        id_column: column with the ids, which must be stable and distinct.

    Raises:
        DataError: a row without an id, an id that comes twice, or a value that JSON does not have.
    """
    found: dict[str, Task] = {}
    for number, row in enumerate(dataset):
        if row.get(id_column) is None:
            raise DataError(f"row {number}", id_column, f"has no value; columns are {sorted(row)}")
        task = Task(str(row[id_column]), split, _meta(row, id_column, number))
        if task.id in found:
            raise DataError(f"row {number}", id_column, f"{task.id!r} comes twice; ids must be distinct")
        found[task.id] = task
    return list(found.values())


def _meta(row: Mapping[str, Any], id_column: str, number: int) -> dict[str, Any]:
    try:
        if META in row:
            meta: dict[str, Any] = json.loads(row[META])
            return meta
        return json.loads(json.dumps({name: value for name, value in row.items() if name not in (id_column, "split")}))
    except (TypeError, ValueError) as error:
        raise DataError(f"row {number}", META, f"{error}; drop or convert the column") from None
