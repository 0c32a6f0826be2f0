"""Processes, device visibility and environment variables: the only module that touches them.

A run gets a SuperLink of its own: own home, own loopback ports, an empty working directory (Ray puts it before the app
on the path of the simulated clients) and no installation of packages at run time.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from filelock import FileLock, Timeout

from flwr_agent.errors import AgentError
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
CONNECTION = "own"
HOMES = "fa-"
"""What the names of Flower's homes in the temporary folder begin with; short, for Ray's sockets."""


class LaunchError(AgentError, RuntimeError):
    """Flower did not start or did not accept the run; carries the end of its log."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Federation:
    """Where the clients of a run live.

    Example:
        >>> Federation(num_nodes=2, threads=1).simulation()
        'num-supernodes=2 client-resources-num-cpus=1 client-resources-num-gpus=0.0 init-args-num-cpus=2'
    """

    num_nodes: int
    threads: int
    """CPU threads of one client."""
    gpus: float = 0.0
    """GPUs of one client; simulated clients beyond what the machine has take turns."""
    is_deployment: bool = False
    """SuperNodes with processes of their own on loopback, one per client id, instead of the simulation."""
    modules: tuple[Path, ...] = ()
    """Folders of the user's own modules, which ServerApp and clients import too."""

    def simulation(self) -> str:
        """Flower's federation settings: as many clients side by side as there are cores."""
        cpus = max(self.threads, os.cpu_count() or 1)
        return (
            f"num-supernodes={self.num_nodes} client-resources-num-cpus={self.threads} "
            f"client-resources-num-gpus={self.gpus} init-args-num-cpus={cpus}"
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Flower:
    """A running SuperLink of our own and how to speak to it."""

    home: Path
    env: Mapping[str, str]
    federation: Federation
    process: subprocess.Popen[bytes]

    def submit(self, app: Path, overrides: Mapping[str, bool | int | float | str]) -> int:
        """Start the app in folder `app` with these run-config overrides; returns the run id."""
        config = self.home / "run.toml"
        config.write_text(
            "".join(f"{key} = {json.dumps(value, ensure_ascii=False)}\n" for key, value in overrides.items()),
            encoding="utf-8",
        )
        command = ["run", str(app), CONNECTION, "--run-config", str(config)]
        if not self.federation.is_deployment:
            command += ["--federation-config", self.federation.simulation()]
        return int(self._ask(*command)["run-id"])

    def status(self, run_id: int) -> str:
        """`pending`, `starting`, `running`, `finished:completed`, `finished:failed` or `finished:stopped`."""
        return str(self._ask("ls", CONNECTION, "--run-id", str(run_id))["runs"][0]["status"])

    @contextmanager
    def log(self, run_id: int, path: Path) -> Iterator[subprocess.Popen[bytes]]:
        """Append the run's log to `path` as it grows, by a process that ends with the run."""
        with supervised(
            _tool("flwr", "log", str(run_id), CONNECTION, "--stream"), self.home, self.env, path
        ) as process:
            yield process

    def _ask(self, *arguments: str) -> dict[str, Any]:
        done = subprocess.run(
            _tool("flwr", *arguments, "--format", "json"),
            env=self.env, cwd=self.home, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            answer: dict[str, Any] = json.loads(done.stdout)
        except json.JSONDecodeError:
            answer = {}
        if done.returncode or not answer.get("success"):
            reason = answer.get("error-message") or done.stdout + done.stderr
            raise LaunchError(f"flwr {arguments[0]} failed: {' '.join(str(reason).split())}")
        return answer


@contextmanager
def flower(federation: Federation) -> Iterator[Flower]:
    """A SuperLink of our own, with its SuperNodes in deployment; all of it ends with the block.

    Raises:
        LaunchError: it did not come up.
    """
    sweep_homes()
    with tempfile.TemporaryDirectory(prefix=HOMES, ignore_cleanup_errors=True) as folder, ExitStack() as stack:
        home = Path(folder)
        stack.enter_context(FileLock(home / "owner.lock"))
        cwd = home / "empty"
        cwd.mkdir()
        port, *node_ports = free_ports(1 + federation.num_nodes * federation.is_deployment)
        env = child_env(home, threads=federation.threads, modules=federation.modules)
        (home / "config.toml").write_text(
            f'[superlink]\ndefault = "{CONNECTION}"\n\n[superlink.{CONNECTION}]\n'
            f'address = "127.0.0.1:{port}"\ninsecure = true\n',
            encoding="utf-8",
        )
        kind = [] if federation.is_deployment else ["--simulation"]
        command = _tool("flower-superlink", "--insecure", *kind, "--host", "127.0.0.1", "--port", str(port))
        process = stack.enter_context(supervised(command, cwd, env, home / "superlink.log"))
        _wait_until_healthy(process, port, home / "superlink.log")
        for client_id, node_port in enumerate(node_ports):
            command = _supernode(client_id, federation.num_nodes, port, node_port)
            log = home / f"supernode-{client_id}.log"
            stack.enter_context(supervised(command, cwd, pinned(env, client_id, gpus=federation.gpus), log))
        yield Flower(home=home, env=env, federation=federation, process=process)


def sweep_homes() -> None:
    """Remove the homes whose launcher was killed before it could."""
    for lock in Path(tempfile.gettempdir()).glob(f"{HOMES}*/owner.lock"):
        with suppress(Timeout, OSError), FileLock(lock, timeout=0.0):
            shutil.rmtree(lock.parent, ignore_errors=True)


@contextmanager
def supervised(command: list[str], cwd: Path, env: Mapping[str, str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
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


def child_env(home: Path, *, threads: int, modules: Iterable[Path] = ()) -> dict[str, str]:
    """Environment of Flower's processes: ours, quiet, with its own home and a path that cannot shadow the app.

    Flower puts the app before this path; `modules` come last on it.
    """
    ours = dict(os.environ)
    entries = [Path(entry).absolute() for entry in ours.pop("PYTHONPATH", "").split(os.pathsep) if entry]
    kept = [str(entry) for entry in entries if entry.resolve() != ROOT]
    kept += [str(folder) for folder in modules if str(folder) not in kept]
    path = os.pathsep.join([str(Path(sys.executable).parent), ours.get("PATH", os.defpath)])
    ray = {"RAY_TMPDIR": str(home)}
    return ours | QUIET | ray | {
        "FLWR_HOME": str(home),
        "PATH": path,
        "OMP_NUM_THREADS": str(threads),
        **({"PYTHONPATH": os.pathsep.join(kept)} if kept else {}),
    }  # fmt: skip


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


def _supernode(client_id: int, total: int, port: int, own_port: int) -> list[str]:
    config = f"partition-id={client_id} num-partitions={total}"
    link = ["--superlink", f"127.0.0.1:{port}", "--port", str(own_port)]
    return _tool("flower-supernode", "--insecure", *link, "--node-config", config)


def _tool(name: str, *arguments: str) -> list[str]:
    """A command of the interpreter's environment, or of the path where packages lie elsewhere."""
    beside = Path(sys.executable).with_name(name)
    return [str(beside) if beside.exists() else shutil.which(name) or name, *arguments]


def _wait_until_healthy(process: subprocess.Popen[bytes], port: int, log: Path, timeout_s: float = 60.0) -> None:
    end = time.monotonic() + timeout_s
    while time.monotonic() < end and process.poll() is None:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=1):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)
    raise LaunchError(f"Flower's SuperLink did not start on port {port}: {end_of(log)}")


def end_of(log: Path) -> str:
    """The last lines of a log in one."""
    lines = log.read_text(encoding="utf-8", errors="replace").split("\n")
    return " ".join(" ".join(lines[-12:]).split()) or "it said nothing"
