"""Worker processes and vLLM engines: how they are started, found to be possible, and ended."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
from filelock import FileLock

from flwr_agent.config import RunConfig
from flwr_agent.errors import ConfigError, WorkerError
from flwr_agent.rl.launch import end_of, free_ports, pinned, settle, visible_gpus, worker_env

GRACE_S = 10.0
"""Seconds between asking a worker to end and ending it."""
SENTINEL = "sys.version_info"
"""What an interpreter that is asked for its packages says first."""
VLLM = {
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "WARNING",
    "VLLM_USE_FLASHINFER_SAMPLER": "0",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
}
"""A colocated engine: nothing is reported anywhere, the sampler needs no compiler, and on CPU it takes 1 GiB and leaves
threads to the scheduler."""


def start_worker(
    address: str,
    *,
    python: str,
    needs: Sequence[str] = (),
    idle_timeout_s: float,
    owner: int = 0,
    timeout_s: float = 300.0,
) -> None:
    """Start a worker process that listens at the Unix socket `address` and outlives this process.

    Args:
        address: socket; `address.log` gets what the worker prints, `address.pid` its process id.
        python: interpreter, `same` for ours.
        needs: packages it must have.
        idle_timeout_s: seconds without a request after which it ends.
        owner: process id with which it ends, 0 for none.
        timeout_s: seconds it has to come up.

    Raises:
        ConfigError: there is no such interpreter, or it lacks a package.
        WorkerError: it ended or did not listen in time.
    """
    check_python(python, needs)
    interpreter = sys.executable if python == "same" else python
    log = Path(f"{address}.log")
    with log.open("ab") as out:
        process = subprocess.Popen(
            [interpreter, "-m", "flwr_agent.rl.remote", address, str(idle_timeout_s), str(owner)],
            stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, cwd=log.parent, start_new_session=True,
            env=worker_env(),
        )  # fmt: skip
    Path(f"{address}.pid").write_text(str(process.pid), encoding="ascii")
    end = time.monotonic() + timeout_s
    while not listens(address):
        if process.poll() is not None or time.monotonic() > end:
            process.kill()
            raise WorkerError(f"the worker process did not start: {end_of(log)} (log: {log})")
        time.sleep(0.1)


def end_worker(address: str) -> None:
    """End the worker that was started at `address`, whatever it is at, and remove its socket."""
    with suppress(psutil.NoSuchProcess):
        if process := living(address):
            process.terminate()
            process.resume()  # one that was stopped sees no signal before
            if psutil.wait_procs([process], timeout=GRACE_S)[1]:
                process.kill()
                process.wait()
    for file in (Path(f"{address}.pid"), Path(address)):
        file.unlink(missing_ok=True)


def living(address: str) -> psutil.Process | None:
    """The worker that was started at `address`, if it lives."""
    try:
        process = psutil.Process(int(Path(f"{address}.pid").read_text(encoding="ascii")))
        return process if address in process.cmdline() else None
    except (FileNotFoundError, ValueError, psutil.Error):
        return None


def spent(address: str) -> float:
    """Seconds of processor time that the worker at `address` and its children have spent; 0 if there is none."""
    total = 0.0
    with suppress(psutil.Error):
        if process := living(address):
            for one in (process, *process.children(recursive=True)):
                times = one.cpu_times()
                total += times.user + times.system
    return total


def start_ranks(config: RunConfig) -> list[subprocess.Popen[bytes]]:
    """Make this process rank 0 of a client's training group and start the others, one per GPU in order; none without DeepSpeed.

    They end with this process, or by `end_ranks`.
    """
    trainer = config.trainer
    if trainer.deepspeed == "none":
        return []
    [port] = free_ports(1)
    group = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": str(config.worker.torch_threads)}
    group |= dict.fromkeys(("WORLD_SIZE", "LOCAL_WORLD_SIZE"), str(trainer.ranks))
    group |= {} if visible_gpus() else {"DS_ACCELERATOR": "cpu"}
    others = []
    for rank in range(1, trainer.ranks):
        env = pinned(worker_env(**group, RANK=str(rank), LOCAL_RANK="0"), rank)
        process = subprocess.Popen([sys.executable, "-m", "flwr_agent.rl.ranks"], stdin=subprocess.PIPE, env=env)
        if process.stdin:
            process.stdin.write(json.dumps(config.flat()).encode() + b"\n")
            process.stdin.flush()
        others.append(process)
    settle(group | {"RANK": "0", "LOCAL_RANK": "0"})
    return others


def end_ranks(others: Sequence[subprocess.Popen[bytes]]) -> None:
    """End the other processes of a group."""
    for process in others:
        if process.stdin:
            process.stdin.close()
        process.wait()


def needed(config: RunConfig) -> list[str]:
    """Packages that a worker of this run imports."""
    rollout = config.rollout
    return [
        "torch",
        "transformers",
        "trl",
        *(["peft"] if config.model.lora.rank else []),
        *(["deepspeed"] if config.trainer.deepspeed != "none" else []),
        *(["vllm"] if (rollout.engine, rollout.server_url) == ("vllm", "none") else []),
    ]


def check_python(python: str, needs: Sequence[str]) -> None:
    """Refuse an interpreter that a worker could not run in; nothing is imported there.

    Raises:
        ConfigError: it cannot be started, or lacks one of the packages `needs`.
    """
    interpreter = sys.executable if python == "same" else python
    code = (
        "import sys; from importlib.util import find_spec; "
        f"print('{SENTINEL}', *(n for n in sys.argv[1:] if find_spec(n) is None))"
    )
    try:
        done = subprocess.run(
            [interpreter, "-c", code, *needs],
            capture_output=True, text=True, check=True, stdin=subprocess.DEVNULL, timeout=60,
        )  # fmt: skip
    except OSError as error:
        fix = f"cannot be started ({error.strerror}); give the path of a Python interpreter, or `same`"
        raise ConfigError("worker.python", python, fix) from error
    except subprocess.SubprocessError as error:
        raise ConfigError(
            "worker.python", python, "is no Python interpreter; give the path of one, or `same`"
        ) from error
    first, *missing = done.stdout.split() or [""]
    if first != SENTINEL:
        raise ConfigError("worker.python", python, "is no Python interpreter; give the path of one, or `same`")
    if missing:
        fix = f"this interpreter lacks the package {missing[0]}; install it there, or name one that has it"
        raise ConfigError("worker.python", python, fix)


@contextmanager
def engine_start(*, is_apart: bool) -> Iterator[None]:
    """The block in which this process starts a vLLM engine: its settings, and one start at a time on this machine.

    An engine measures free memory while it starts, so two at once on a GPU would mislead each other. In this very process
    it reads the trainer's tensors; `is_apart` makes it a process of its own.
    """
    settle(VLLM, keep=True)
    settle({"VLLM_ENABLE_V1_MULTIPROCESSING": str(int(is_apart)), "VLLM_WORKER_MULTIPROC_METHOD": "spawn"})
    with FileLock(Path(tempfile.gettempdir()) / f"flwr-agent-{os.getuid()}-engine.lock"):
        yield


def listens(address: str) -> bool:
    """Whether a process accepts connections at a Unix socket."""
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(address)
        except OSError:
            return False
    return True
