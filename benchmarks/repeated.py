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
    """`seconds` and `machine` of a run that is done."""
    return json.loads((folder / DONE).read_text(encoding="utf-8"))


def seconds(folders: Iterable[Path]) -> float:
    """What finished runs took together."""
    return sum(facts(folder)["seconds"] for folder in folders)


def machines(folders: Iterable[Path]) -> str:
    """Where finished runs were made."""
    return "; ".join(sorted({facts(folder)["machine"] for folder in folders}))


def finish(runs: Runs, jobs: int) -> None:
    """Run what is not done, `jobs` at once; a run that fails does not keep the others from theirs.

    Raises:
        SystemExit: some failed; it names their folders.
    """
    left = [folder for folder in runs if not is_done(folder)]
    with ThreadPoolExecutor(jobs) as pool:
        codes = list(pool.map(lambda folder: _run(folder, runs[folder]), left))
    if failed := [str(folder) for folder, code in zip(left, codes, strict=True) if code]:
        sys.exit(f"{len(failed)} runs failed, each with its output beside its folder: {' '.join(failed)}")


def _run(folder: Path, settings: Sequence[str]) -> int:
    """One run, with its output in `FOLDER.out`; its checkpoints are dropped when it is done. Returns its exit code."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "flwr_agent", "run", f"output_dir={folder}", *settings]
    start = time.perf_counter()
    with folder.with_suffix(".out").open("ab") as out:
        code = subprocess.run(command, stdout=out, stderr=subprocess.STDOUT, check=False).returncode  # noqa: S603
    if code:
        return code
    for kept in folder.glob("round-*"):
        shutil.rmtree(kept)
    found = {"seconds": round(time.perf_counter() - start, 1), "machine": _machine()}
    (folder / DONE).write_text(json.dumps(found), encoding="utf-8")
    print(f"{folder.name}: done in {found['seconds']:.0f} s", file=sys.stderr, flush=True)  # noqa: T201
    return 0


def _machine() -> str:
    cores = f"{len(os.sched_getaffinity(0))} of {os.cpu_count()} cores"
    return f"{_processor()}, {cores}, Python {platform.python_version()}, torch {version('torch')}"


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.is_file() else []
    named = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.machine())
