"""The user's own WebShop data: `items_*.json`, `items_ins*.json` and, for human goals, `items_human_ins.json`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from envs.webshop.goals import Goal, human_goals, shuffled, synthetic_goals
from envs.webshop.products import Product, parse_products
from flwr_agent.errors import DataError

GOALS = ("synthetic", "human")
VAL_SIZE = 500
"""Goals at the head of the canonical order that are held out; all later ones train."""
HUMAN = "items_human_ins.json"
_TEXTS = ("attributes", "instruction_attributes", "instruction_options")


def load(folder: Path, kind: str) -> tuple[list[Product], dict[str, tuple[Goal, ...]], str]:
    """Products, goals by split and the digest of the files of a data folder.

    Raises:
        DataError: a file is missing, is there twice, is no JSON or breaks WebShop's schema; or there are too few goals.
    """
    items = _only(folder, "items_*.json", without=("items_ins", "items_human"))
    paths = [items, _only(folder, "items_ins*.json")]
    if kind == "human":
        paths.append(_only(folder, HUMAN))
    digest = hashlib.sha256(kind.encode())
    records, *tables = [_read(path, digest) for path in paths]
    instructions = _checked(tables[0], paths[1], many=False)
    attributes = {asin: entry.get("attributes", ()) for asin, entry in instructions.items()}
    products = parse_products(records, attributes, str(items))
    if kind == "human":
        goals = shuffled(human_goals(products, _checked(tables[1], paths[2], many=True)))
    else:
        goals = shuffled(synthetic_goals(products, instructions))
    if len(goals) <= VAL_SIZE:
        raise DataError(paths[-1], "goals", f"{len(goals)} goals for these products; more than {VAL_SIZE} are needed")
    return products, {"val": tuple(goals[:VAL_SIZE]), "train": tuple(goals[VAL_SIZE:])}, digest.hexdigest()


def _only(folder: Path, pattern: str, *, without: tuple[str, ...] = ()) -> Path:
    found = sorted(path for path in folder.glob(pattern) if not path.name.startswith(without or "\0"))
    if len(found) != 1:
        names = ", ".join(path.name for path in found) or "nothing"
        raise DataError(folder, pattern, f"must name exactly one file; found {names}")
    return found[0]


def _read(path: Path, digest: Any) -> Any:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(path, "file", f"cannot be read ({error.strerror})") from error
    digest.update(content)
    try:
        return json.loads(content)
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DataError(path, "JSON", f"cannot be read ({error}); fetch the file again") from error


def _checked(table: Any, path: Path, *, many: bool) -> Mapping[str, Any]:
    if not isinstance(table, dict):
        raise DataError(path, "table", "must hold entries by asin")
    for asin, value in table.items():
        if many and not isinstance(value, list):
            raise DataError(path, asin, "must be a list of instructions")
        for where, entry in _entries(asin, value, many=many):
            _check_entry(entry, path, where, needed=("instruction", *_TEXTS[1:]) if many else ())
    return table


def _entries(asin: str, value: Any, *, many: bool) -> Iterator[tuple[str, Any]]:
    return ((f"{asin}[{i}]", entry) for i, entry in enumerate(value)) if many else iter([(asin, value)])


def _check_entry(entry: Any, path: Path, where: str, *, needed: tuple[str, ...]) -> None:
    if not isinstance(entry, dict):
        raise DataError(path, where, "must be an object")
    instruction = entry.get("instruction")
    for name in needed if instruction is None else (*needed, "instruction_attributes"):
        if name not in entry:
            raise DataError(path, f"{where}.{name}", "missing; every instruction needs it")
    if not isinstance(instruction, str | None):
        raise DataError(path, f"{where}.instruction", "must be text")
    for name in _TEXTS:
        value = entry.get(name, [])
        if not (isinstance(value, list) and all(isinstance(part, str) for part in value)):
            raise DataError(path, f"{where}.{name}", "must be a list of texts")
