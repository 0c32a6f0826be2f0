"""The runs of a benchmark, several side by side, each through `python -m flwr_agent run`.

A run computes the same whatever runs beside it: its seeds and its number of threads (`worker.torch_threads`) are its own.
What is done is not repeated and what was interrupted is resumed, so that a command can be given again.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import Any

DONE = "done.json"
"""Written beside a run that has come to its end: its seconds, and on what machine."""
Runs = Mapping[Path, Sequence[str]]
"""Run folder -> its settings."""


def is_done(folder: Path) -> bool:
    """Whether the run in a folder has come to its end."""
    return (folder / DONE).is_file()


def facts(folder: Path) -> dict[str, Any]:
    """`seconds`, `machine` and `settings` of a run that is done."""
    return json.loads((folder / DONE).read_text(encoding="utf-8"))


def seconds(folders: Iterable[Path]) -> float:
    """What finished runs took together."""
    return sum(facts(folder)["seconds"] for folder in folders)


def machines(folders: Iterable[Path]) -> str:
    """Where finished runs were made."""
    return "; ".join(sorted({facts(folder)["machine"] for folder in folders}))


def finish(runs: Runs, jobs: int, *, keep: bool = False) -> None:
    """Run what is not done, `jobs` at once; a run that fails does not keep the others from theirs.

    Args:
        runs: what is to be done.
        jobs: runs side by side.
        keep: whether checkpoints stay.

    Raises:
        SystemExit: some failed, or are there with other settings; it names their folders.
    """
    left = [folder for folder in runs if not is_done(folder)]
    if other := [str(folder) for folder in runs if folder not in left and _is_other(folder, runs[folder])]:
        sys.exit(f"these hold runs with other settings; choose another folder or remove them: {' '.join(other)}")
    with ThreadPoolExecutor(jobs) as pool:
        codes = list(pool.map(lambda folder: _run(folder, runs[folder], keep=keep), left))
    if failed := [str(folder) for folder, code in zip(left, codes, strict=True) if code]:
        sys.exit(f"{len(failed)} runs failed, each with its output beside its folder: {' '.join(failed)}")


def _is_other(folder: Path, settings: Sequence[str]) -> bool:
    return facts(folder).get("settings", [*settings]) != [*settings]


def _run(folder: Path, settings: Sequence[str], *, keep: bool) -> int:
    """One run, with its output in `FOLDER.out`. Returns its exit code."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "flwr_agent", "run", f"output_dir={folder}", *settings]
    start = time.perf_counter()
    with folder.with_suffix(".out").open("ab") as out:
        code = subprocess.run(command, stdout=out, stderr=subprocess.STDOUT, check=False).returncode  # noqa: S603
    if code:
        return code
    for checkpoint in [] if keep else folder.glob("round-*"):
        shutil.rmtree(checkpoint)
    took = round(time.perf_counter() - start, 1)
    found = {"seconds": took, "machine": _machine(), "settings": [*settings]}
    (folder / DONE).write_text(json.dumps(found), encoding="utf-8")
    print(f"{folder.name}: done in {took:.0f} s", file=sys.stderr, flush=True)  # noqa: T201
    return 0


def _machine() -> str:
    cores = f"{len(os.sched_getaffinity(0))} of {os.cpu_count()} cores"
    return f"{_processor()}, {cores}, Python {platform.python_version()}, torch {version('torch')}"


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.is_file() else []
    named = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.machine())
