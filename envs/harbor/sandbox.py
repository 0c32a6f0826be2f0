"""What a sandbox is, and one command under watch: its output's tail is kept, and what goes beyond its limits is killed."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import psutil

TAIL_BYTES = 4096
"""End of a command's output that the agent sees."""
MAX_OUTPUT_BYTES = 64 * 2**20
"""Output beyond which a command is stopped."""
_TICK_S = 0.2
_TICKS_PER_DISK_CHECK = 5
_EXIT_CODES = {"time": 124, "memory": 137, "storage": 137, "output": 137}
"""What is reported for a stopped command, as `timeout` and shells report it."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a command ended."""

    exit_code: int
    output: str
    """The last `TAIL_BYTES` of stdout and stderr together."""
    stopped: str = ""
    """Why it was killed: `time`, `memory`, `storage`, `output`; empty when it ended by itself."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What is watched from outside while a command runs."""

    timeout_s: float
    memory_mb: int | None = None
    """Resident memory of all its processes; None leaves it to the container."""
    folder: Path | None = None
    """The folder whose size is limited; None leaves it to the container."""
    storage_mb: int = 0
    max_files: int = 100_000


class Sandbox(Protocol):
    """One episode's machine."""

    async def start(self) -> str:
        """Make it ready; the working directory."""
        ...

    async def run(self, command: str) -> Outcome:
        """One bash command of the agent."""
        ...

    async def verify(self) -> float:
        """The reward, from the task's `test.sh`.

        Raises:
            EnvError: the verifier gave no reward.
        """
        ...

    async def close(self) -> None:
        """Remove it; may be called any number of times."""
        ...


async def supervise(argv: Sequence[str], limits: Limits, *, env: Mapping[str, str] | None = None) -> Outcome:
    """Run `argv` until it ends or breaks a limit; no process of its group is left when this returns.

    Args:
        argv: the program and its arguments.
        limits: what it may use.
        env: its environment; None is the caller's own.

    Raises:
        OSError: the program cannot be started.
    """
    process = await _started(argv, env)
    tail = _Tail()
    reading = asyncio.ensure_future(tail.read(process.stdout))
    try:
        stopped = await _watch(process, tail, limits)
    finally:
        await _end(process)
        await reading
        exit_code = await process.wait()
    if not stopped and await _is_overfull(limits):
        stopped = "storage"
    return Outcome(_EXIT_CODES.get(stopped, exit_code), tail.end.decode(errors="replace"), stopped)


async def _started(argv: Sequence[str], env: Mapping[str, str] | None) -> asyncio.subprocess.Process:
    """A process in a session of its own; shielded, because asyncio may hang when its start is cancelled."""
    starting = asyncio.ensure_future(
        asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
            cwd="/",
            env=env,
        )
    )
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        await _end(await starting)
        raise


async def _end(process: asyncio.subprocess.Process) -> None:
    """Kill a process and what it started: that first, so that bubblewrap lives to reap the sandbox it made."""
    if process.returncode is not None:
        return
    with contextlib.suppress(psutil.NoSuchProcess):
        for child in psutil.Process(process.pid).children():
            child.kill()
    if not await _ends_within(process, _TICK_S):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


async def _ends_within(process: asyncio.subprocess.Process, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            await process.wait()
    except TimeoutError:
        return False
    return True


class _Tail:
    """The end of a stream, and how long the stream was."""

    def __init__(self) -> None:
        self.end = b""
        self.num_bytes = 0

    async def read(self, stream: asyncio.StreamReader | None) -> None:
        while stream and (chunk := await stream.read(65536)):
            self.num_bytes += len(chunk)
            self.end = (self.end + chunk)[-TAIL_BYTES:]


async def _watch(process: asyncio.subprocess.Process, tail: _Tail, limits: Limits) -> str:
    """Wait for the end of a process, or for the limit it breaks: its name."""
    clock = asyncio.get_running_loop().time
    deadline = clock() + limits.timeout_s
    for tick in itertools.count(1):
        if await _ends_within(process, min(_TICK_S, max(deadline - clock(), 0))):
            return ""
        if clock() >= deadline:
            return "time"
        if tail.num_bytes > MAX_OUTPUT_BYTES:
            return "output"
        if limits.memory_mb is not None and _resident_mb(process.pid) > limits.memory_mb:
            return "memory"
        if tick % _TICKS_PER_DISK_CHECK == 0 and await _is_overfull(limits):
            return "storage"
    raise AssertionError("a count has no end")


def _resident_mb(pid: int) -> float:
    total = 0
    with contextlib.suppress(psutil.NoSuchProcess):
        for child in psutil.Process(pid).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                total += child.memory_info().rss
    return total / 2**20


async def _is_overfull(limits: Limits) -> bool:
    """Whether the folder holds too much; `find` sees to any depth, and to paths of any length."""
    if limits.folder is None:
        return False
    find = ("find", str(limits.folder), "-printf", r"%k\n")
    listed = await asyncio.to_thread(subprocess.run, find, capture_output=True, check=False)
    sizes_kb = listed.stdout.split()
    return len(sizes_kb) > limits.max_files or sum(map(int, sizes_kb)) > 1024 * limits.storage_mb
