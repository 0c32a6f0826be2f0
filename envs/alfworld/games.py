"""Finds ALFWorld's games on disk, pins them in a manifest, and reads them.

Layout: `DATA/{train,valid_seen,valid_unseen}/TYPE-OBJECT-MOVABLE-RECEPTACLE-SCENE/TRIAL/game.tw-pddl`, where `DATA` may
also be the folder above, with `json_2.1.1` in it.
"""

from __future__ import annotations

import hashlib
import json
import logging
import random
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from envs import places
from envs.base import Task
from flwr_agent.errors import ConfigError, DataError

log = logging.getLogger(__name__)

SPLITS = ("train", "valid_seen", "valid_unseen")
GAME_FILE = "game.tw-pddl"
SHUFFLE_SEED = 42
"""Shuffles the sorted list of a split into its canonical order."""

_FIELDS = ("pddl_domain", "pddl_problem", "grammar")
_SOLVABLE = re.compile(rb'"solvable"\s*:\s*true')
_GOAL = re.compile(r"\(:goal\s*\(")


def root(data_path: str) -> Path:
    """The folder that holds the splits.

    Raises:
        ConfigError: if there is none.
    """
    fix = f"must hold one of the folders {', '.join(SPLITS)} (or json_2.1.1)"
    folder = places.folder(data_path, fix)
    for candidate in (folder, folder / "json_2.1.1"):
        if any((candidate / split).is_dir() for split in SPLITS):
            return candidate
    raise ConfigError("env.data_path", data_path, fix)


def listed(folder: Path, split: str) -> list[str]:
    """Split-relative paths of the games, sorted, as pinned by `manifest_SPLIT.json`; the first call writes it.

    A game that lies on disk but is not listed is ignored.

    Raises:
        DataError: if a listed game is missing, the manifest is damaged, or the split holds no game.
    """
    file = folder / f"manifest_{split}.json"
    games = _read_manifest(file) if file.exists() else _scan(folder / split)
    if not games:
        raise DataError(folder / split, GAME_FILE, "no solvable game found; run alfworld-download or fix env.data_path")
    missing = [game for game in games if not (folder / split / game).is_file()]
    if missing:
        fix = f"{len(missing)} of {len(games)} listed games are missing, first {missing[0]}; restore them"
        raise DataError(file, "games", fix)
    if not file.exists():
        _write_manifest(file, games)
    return games


def digest(games: Sequence[str]) -> str:
    """SHA-256 of a sorted game list."""
    return hashlib.sha256("\n".join(games).encode()).hexdigest()


def tasks(folder: Path, split: str) -> tuple[Task, ...]:
    """The games of a split in canonical order: sorted, then shuffled by a fixed seed."""
    games = listed(folder, split)
    random.Random(SHUFFLE_SEED).shuffle(games)
    return tuple(_task(folder, split, game) for game in games)


def read(path: Path | str) -> Mapping[str, Any]:
    """The content of a game file.

    Raises:
        DataError: if it cannot be read, lacks a field, or has no goal.
    """
    try:
        game = json.loads(Path(path).read_bytes())
    except OSError as error:
        raise DataError(path, "file", f"cannot be read ({error.strerror})") from error
    except ValueError as error:
        raise DataError(path, "content", f"is not JSON ({error})") from error
    for name in _FIELDS:
        if not isinstance(game, dict) or not isinstance(game.get(name), str):
            raise DataError(path, name, "must be a text; generate the game anew")
    if not _GOAL.search(game["pddl_problem"]):
        raise DataError(path, "pddl_problem", "has no goal; generate the game anew or drop it")
    return game


def _scan(folder: Path) -> list[str]:
    """Games that can be played: solvable, nothing sliced, no movable receptacle."""
    found = [path.relative_to(folder).as_posix() for path in folder.glob(f"*/*/{GAME_FILE}")]
    playable = (game for game in found if "movable" not in game and "Sliced" not in game)
    return sorted(game for game in playable if _SOLVABLE.search((folder / game).read_bytes()))


def _read_manifest(file: Path) -> list[str]:
    try:
        content = json.loads(file.read_bytes())
        games, expected = list(content["games"]), content["sha256"]
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(file, "games", "is not a manifest; delete it to have the folder scanned") from error
    if games != sorted(games) or digest(games) != expected:
        raise DataError(file, "sha256", "does not fit the list of games; restore the file")
    return games


def _write_manifest(file: Path, games: list[str]) -> None:
    content = json.dumps({"sha256": digest(games), "games": games}, indent=0)
    try:
        partial = file.with_suffix(".partial")
        partial.write_text(content, encoding="utf-8")
        partial.replace(file)
    except OSError as error:
        log.warning("%s: cannot be written (%s); the games of this split are not pinned", file, error.strerror)
        return
    log.warning("%s: pinned %d games, sha256 %s", file, len(games), digest(games)[:8])


def _task(folder: Path, split: str, game: str) -> Task:
    """The id is that of published success labels; type, objects and scene stand in the folder's name."""
    spec, trial, _ = game.split("/")
    parts = spec.split("-")
    if len(parts) != 5 or not parts[4].isdigit():
        raise DataError(folder / split / game, "folder", "must be named TYPE-OBJECT-MOVABLE-RECEPTACLE-SCENE")
    category, object_, _, receptacle, scene = parts
    meta = {
        "category": category,
        "scene": int(scene),
        "objects": [object_, receptacle],
        "game": f"{split}/{game}",
    }
    return Task(f"alfworld_{spec}_{trial}_game", split, meta)
