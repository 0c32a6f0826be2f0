"""What a run needs to go on: the model of a finished round, whole on disk or not there at all."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from safetensors import SafetensorError

from flwr_agent import arrays as model
from flwr_agent.config import DEFINING, KEYS, RunConfig
from flwr_agent.errors import FULL, FullError, ResumeError
from flwr_agent.hosts.launched import KEPT
from flwr_agent.requests import Arrays

VERSION = 2
MODEL, STRATEGY, STATE = "model.safetensors", "strategy.safetensors", "state.json"
STALE, ARCHIVE, LOCK = "_stale", "_archive", ".lock"
_ROUND = re.compile(r"round-(\d{5})")
_ARRAYS = ("arrays", "strategy")
"""Fields of the state that have a file of their own."""
DAMAGE = (ValueError, KeyError, TypeError, AttributeError, SafetensorError)
"""What reading a damaged checkpoint raises."""
BEGINNING = {"config.json", "ledger.jsonl", "federated_summary.json", "report.html", "figures", "tensorboard", "wandb"}
_FULL_IN_RUST = f"(os error {errno.ENOSPC})"
"""How safetensors says it."""
WAYS_OUT = "set fresh=true to archive the folder, or choose another output_dir"


@dataclass(frozen=True, kw_only=True, slots=True)
class RunState:
    """A run after one of its rounds."""

    round: int
    """The last finished round; 0 before the first."""
    arrays: Arrays
    """The global model."""
    digest: str
    """Of `arrays` (the model alone)."""
    base_digest: str
    """Of the original policy (`InitialModel`)."""
    experiment: str
    """Identity of the run across resumes."""
    strategy: Arrays = field(default_factory=dict)
    """What the strategy carries from round to round: moments of a server optimizer and the like."""
    clients: tuple[int, ...] = ()
    """Clients whose replies are in the model."""
    ledger_position: int = 0
    """Bytes of the ledger that belong to this state."""


def name_of(round_: int) -> str:
    """Folder of a round inside the run folder."""
    return f"round-{round_:05d}"


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Keep other runs out of a run folder.

    Raises:
        ResumeError: another run has it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(folder / LOCK, timeout=0):
            yield
    except Timeout as error:
        raise ResumeError(f"another run is writing to {folder}; wait for it or choose another output_dir") from error


@contextmanager
def room(folder: Path) -> Iterator[None]:
    """Say of a full disk which folder is on it.

    Raises:
        FullError: with the way on.
    """
    try:
        yield
    except (OSError, SafetensorError) as error:
        if getattr(error, "errno", None) not in FULL and _FULL_IN_RUST not in str(error):
            raise
        fix = "make room; the same command goes on from the last whole round"
        raise FullError(f"{folder}: {os.strerror(errno.ENOSPC)}; {fix}") from error


def save(folder: Path, state: RunState, config: RunConfig) -> None:
    """Write a round's checkpoint at once or not at all, then drop the ones no longer kept."""
    final = folder / name_of(state.round)
    tmp = final.with_name(final.name + ".tmp")
    try:
        _write(tmp, state, config)
        model.replace(tmp, final)
    except (OSError, SafetensorError):
        shutil.rmtree(tmp, ignore_errors=True)
        raise
    for old in sorted(_complete(folder))[: -config.checkpoint.keep]:
        if not _is_kept_for_good(old, config.checkpoint.milestone_every):
            shutil.rmtree(folder / name_of(old))


def _write(tmp: Path, state: RunState, config: RunConfig) -> None:
    tmp.mkdir()
    model.save(tmp / MODEL, state.arrays)
    if state.strategy:
        model.save(tmp / STRATEGY, state.strategy)
    facts = {f.name: getattr(state, f.name) for f in dataclasses.fields(state) if f.name not in _ARRAYS}
    own = {
        "strategy_digest": model.digest(state.strategy),
        "fingerprint": config.fingerprint(),
        "config": config.flat(),
    }
    (tmp / STATE).write_text(json.dumps({"version": VERSION, **facts, **own}, indent=1), encoding="utf-8")


def _is_kept_for_good(round_: int, milestone_every: int) -> bool:
    return round_ % milestone_every == 0 if milestone_every else round_ == 0


def resume(folder: Path, config: RunConfig) -> RunState | None:
    """The state after the highest complete round, or None in a folder that holds none.

    Rounds that a dead attempt left unfinished are set aside, never read.

    Raises:
        ResumeError: the folder is another objective's, another version's, or beyond `federation.rounds`.
    """
    _set_aside_torn(folder)
    rounds = _complete(folder)
    if not rounds:
        return None
    last = max(rounds)
    try:
        return _load(folder, last, config)
    except DAMAGE as error:
        reason = f"{type(error).__name__}: {error}"
        raise ResumeError(
            f"{folder / name_of(last)} is damaged ({reason}); move it away to resume before it, or {WAYS_OUT}"
        ) from error


def _load(folder: Path, last: int, config: RunConfig) -> RunState:
    facts = json.loads((folder / name_of(last) / STATE).read_text(encoding="utf-8"))
    _check_same_run(folder, last, facts, config)
    if (facts["round"], type(facts["ledger_position"])) != (last, int) or facts["ledger_position"] <= 0:
        raise ValueError(f"{STATE} is not of round {last}")
    return _read(folder / name_of(last), facts)


def kept(folder: Path, round_: int | None = None) -> RunState:
    """The state after a round of a run, by default the last finished one; the run may be going on, nothing is changed.

    Raises:
        ResumeError: the folder does not hold that round or any, or its file is damaged.
    """
    rounds = sorted(_complete(folder)) if folder.is_dir() else []
    if not rounds:
        raise ResumeError(f"{folder} holds no finished round; give the folder of a run")
    if round_ is not None and round_ not in rounds:
        raise ResumeError(f"{folder} has not kept round {round_}; it holds {', '.join(map(str, rounds))}")
    path = folder / name_of(rounds[-1] if round_ is None else round_)
    try:
        return _read(path, json.loads((path / STATE).read_text(encoding="utf-8")))
    except DAMAGE as error:
        raise ResumeError(f"{path} is damaged ({type(error).__name__}: {error})") from error


def _read(path: Path, facts: Mapping[str, Any]) -> RunState:
    arrays, strategy = (
        _intact(path / name, facts[digest]) for name, digest in ((MODEL, "digest"), (STRATEGY, "strategy_digest"))
    )
    known = {f.name: facts[f.name] for f in dataclasses.fields(RunState) if f.name not in _ARRAYS}
    return RunState(**{**known, "arrays": arrays, "strategy": strategy, "clients": tuple(facts["clients"])})


def _intact(file: Path, digest: str) -> Arrays:
    arrays = model.load(file) if file.is_file() else {}
    if model.digest(arrays) != digest:
        raise ValueError(f"{file.name} is not what was written")
    return arrays


def check_is_ours(folder: Path, config: RunConfig) -> None:
    """Refuse a folder without a checkpoint that holds anything but the very beginning of this run.

    Raises:
        ResumeError: names what is there.
    """
    ignored = (ARCHIVE, STALE, LOCK, "config.json.tmp", *KEPT)
    found = sorted(path.name for path in folder.iterdir() if path.name not in ignored)
    if found and not _complete(folder) and not _has_just_begun(folder, config, found):
        raise ResumeError(
            f"{folder} holds {found[0]!r} but no checkpoint to go on from; choose another output_dir, or set fresh=true "
            f"to move what it holds to {folder / ARCHIVE}"
        )


def _has_just_begun(folder: Path, config: RunConfig, found: list[str]) -> bool:
    """Whether a run of this objective was killed here before its first checkpoint."""
    try:
        facts = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        ledger = (folder / "ledger.jsonl").read_bytes() if "ledger.jsonl" in found else b""
    except (OSError, ValueError):
        return False
    is_same = isinstance(facts, dict) and facts.get("fingerprint") == config.fingerprint()
    return is_same and set(found) <= BEGINNING and b'"kind": "round"' not in ledger


def archive(folder: Path) -> None:
    """Move everything a run folder holds into a numbered folder under `_archive`."""
    held_back = {ARCHIVE, LOCK, *KEPT}
    if items := [item for item in folder.iterdir() if item.name not in held_back]:
        target = _numbered(folder / ARCHIVE, "run")
        target.mkdir(parents=True)
        for item in items:
            item.rename(target / item.name)


def _check_same_run(folder: Path, last: int, facts: Mapping[str, Any], config: RunConfig) -> None:
    if facts["version"] != VERSION:
        raise ResumeError(
            f"{folder} has checkpoint version {facts['version']}, this flwr-agent writes {VERSION}; {WAYS_OUT}"
        )
    if facts["fingerprint"] != config.fingerprint():
        changes = "; ".join(_changed(facts["config"], config.flat()))
        raise ResumeError(f"{folder} was trained for another objective: {changes}. Restore the value, or {WAYS_OUT}")
    if last > config.federation.rounds:
        raise ResumeError(
            f"{folder} holds round {last}, beyond federation.rounds={config.federation.rounds}; "
            f"set federation.rounds={last} or more, or {WAYS_OUT}"
        )


def _changed(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    for key in sorted(before.keys() | now.keys()):
        if (key not in KEYS or key in DEFINING) and before.get(key) != now.get(key):
            yield f"{key} was {before.get(key)!r}, is {now.get(key)!r}"


def _complete(folder: Path) -> list[int]:
    found = ((match, path) for path in folder.iterdir() if (match := _ROUND.fullmatch(path.name)))
    return [int(match[1]) for match, path in found if (path / MODEL).is_file() and (path / STATE).is_file()]


def _set_aside_torn(folder: Path) -> None:
    whole = {name_of(round_) for round_ in _complete(folder)}
    for path in sorted(folder.glob("round-*")):
        if _ROUND.fullmatch(path.name.removesuffix(".tmp")) and path.name not in whole:
            target = _numbered(folder / STALE, path.name)
            target.parent.mkdir(exist_ok=True)
            path.rename(target)


def _numbered(folder: Path, name: str) -> Path:
    return next(path for i in range(1, 10**6) if not (path := folder / f"{name}.{i}").exists())
