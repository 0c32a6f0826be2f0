"""Flower's processes, device visibility and environment variables, which no other module touches."""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from types import FrameType
from typing import NoReturn

from flwr_agent.paths import ROOT

PORTS = range(20_000, 32_768)
"""Below the ephemeral range of Linux, so that no outgoing connection can hold one."""
QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DEDUP_LOGS": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_worker_niceness": "0",
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
}
"""No network calls, no installation while a run starts, every client's log line kept and no bars in it, devices as they
are, and simulated clients at normal priority (Ray gives its workers nice 15)."""
Process = subprocess.Popen[bytes]


@contextmanager
def supervised(command: list[str], cwd: Path, env: Mapping[str, str], log: Path) -> Iterator[Process]:
    """Run `command` beside us; it and all that it started end with the block, or with this process."""
    supervise = Path(__file__).with_name("supervise.py")
    with log.open("ab") as out:
        process = subprocess.Popen(
            [sys.executable, str(supervise), *command],
            stdin=subprocess.PIPE, stdout=out, stderr=subprocess.STDOUT, cwd=cwd, env=env, start_new_session=True,
        )  # fmt: skip
    try:
        yield process
    finally:
        if process.stdin:
            process.stdin.close()
        process.wait()


def answer(command: list[str], cwd: Path, env: Mapping[str, str]) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of a command that ends by itself."""
    done = subprocess.run(
        command, env=env, cwd=cwd, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    )
    return done.returncode, done.stdout, done.stderr


def become(command: list[str], env: Mapping[str, str]) -> NoReturn:
    """Run `command` in place of this process, outside any folder that Python could import from."""
    os.chdir("/")
    os.execve(command[0], command, env)


def child_env(home: Path | None, *, threads: int, modules: Iterable[Path] = ()) -> dict[str, str]:
    """Environment of Flower's processes: ours, quiet, with a path that cannot shadow the app.

    Args:
        home: Flower's home, in which Ray works too; None keeps the user's.
        threads: CPU threads of one process.
        modules: folders that come last on the path; Flower puts the app before all of it.
    """
    ours = dict(os.environ)
    entries = [Path(entry).absolute() for entry in ours.pop("PYTHONPATH", "").split(os.pathsep) if entry]
    kept = [str(entry) for entry in entries if entry.resolve() != ROOT]
    kept += [str(folder) for folder in modules if str(folder) not in kept]
    path = os.pathsep.join([str(Path(sys.executable).parent), ours.get("PATH", os.defpath)])
    return ours | QUIET | {
        "PATH": path,
        "OMP_NUM_THREADS": str(threads),
        **({"FLWR_HOME": str(home), "RAY_TMPDIR": str(home)} if home else {}),
        **({"PYTHONPATH": os.pathsep.join(kept)} if kept else {}),
    }  # fmt: skip


def worker_env(**more: str) -> dict[str, str]:
    """Environment of a process of this package: ours, with the package first on its path, and `more`."""
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    return dict(os.environ) | {"PYTHONPATH": path} | more


def settle(values: Mapping[str, str], *, keep: bool = False) -> None:
    """Set variables of this process; with `keep` those that are set already stay."""
    os.environ.update({name: v for name, v in values.items() if not (keep and name in os.environ)})


def visible_gpus() -> list[str]:
    """NVIDIA devices this process may use: those of `CUDA_VISIBLE_DEVICES` if it is set, else all of the machine."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        devices = [device.strip() for device in visible.split(",")]
        return [device for device in devices if device not in ("", "-1")]
    try:
        done = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return []
    return [str(i) for i in range(sum(line.startswith("GPU ") for line in done.stdout.splitlines()))]


def pinned(env: Mapping[str, str], index: int, *, gpus: float = 1.0) -> dict[str, str]:
    """`env` for the `index`-th of several processes that share our devices, `gpus` of them each, in turn.

    Example (with `CUDA_VISIBLE_DEVICES=4,5`):
        >>> [pinned({}, i, gpus=0.5)["CUDA_VISIBLE_DEVICES"] for i in range(4)]
        ['4', '4', '5', '5']
    """
    visible = visible_gpus()
    if not visible or not gpus:
        return dict(env)
    first = int(index * gpus + 1e-9)
    mine = [visible[(first + i) % len(visible)] for i in range(min(max(1, int(gpus)), len(visible)))]
    return dict(env) | {"CUDA_VISIBLE_DEVICES": ",".join(mine)}


def free_ports(count: int) -> list[int]:
    """Distinct loopback ports that nothing listens on."""
    candidates = random.SystemRandom().sample(PORTS, len(PORTS))
    return list(islice(filter(_is_free, candidates), count))


def end_on_sigterm() -> None:
    """Let SIGTERM unwind this process as Ctrl-C does, so that what it started ends with it."""
    signal.signal(signal.SIGTERM, _exit)


def _exit(signum: int, _frame: FrameType | None) -> NoReturn:
    sys.exit(128 + signum)


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def tool(name: str, *arguments: str) -> list[str]:
    """A command of the interpreter's environment, or of the path where packages lie elsewhere."""
    beside = Path(sys.executable).with_name(name)
    return [str(beside) if beside.exists() else shutil.which(name) or name, *arguments]


def end_of(log: Path) -> str:
    """The last lines of a log in one."""
    lines = log.read_text(encoding="utf-8", errors="replace").split("\n")
    return " ".join(" ".join(lines[-12:]).split()) or "it said nothing"
