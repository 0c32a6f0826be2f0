"""One episode's machine made by the `docker` command: a container for the agent, another for the verifier.

The agent's container never holds the tests nor a writable reward folder. The verifier runs in a fresh container made
from the agent's files, where no process of the agent lives.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import uuid
from pathlib import Path

from envs.harbor import reward
from envs.harbor.sandbox import Limits, Outcome, supervise
from envs.harbor.tasks import TaskSpec
from flwr_agent.errors import ConfigError, EnvError

MAX_PROCESSES = 256
SETUP_TIMEOUT_S = 600.0
"""Seconds that building, starting, copying or removing may take."""


def check() -> None:
    """Refuse a machine without a docker engine that answers.

    Raises:
        ConfigError: says what is missing.
    """
    program = shutil.which("docker")
    if program is None:
        raise ConfigError("env.sandbox", "docker", "needs the docker command; install Docker, or use bwrap")
    asked = [program, "version", "--format", "{{.Server.Version}}"]
    if subprocess.run(asked, capture_output=True, check=False).returncode:  # noqa: S603  arguments of our own
        raise ConfigError("env.sandbox", "docker", "no docker engine answers; start one, or use bwrap")


class Docker:
    """The containers of one episode."""

    def __init__(self, task: TaskSpec, *, command_timeout_s: float):
        self._task = task
        self._timeout_s = min(command_timeout_s, task.timeout_s or command_timeout_s)
        self._name = f"flwr-agent-{uuid.uuid4().hex[:12]}"
        self._is_started = False

    async def start(self) -> str:
        """Build the image where there is none, start the container; the working directory."""
        self._is_started = True
        image = self._task.image or await self._build()
        await self._ask(*run_argv(self._task, self._name, image))
        return (await self._ask("exec", self._name, "pwd")).strip()

    async def run(self, command: str) -> Outcome:
        """One bash command of the agent; a restart ends what a stopped one left running."""
        user = ("--user", self._task.user) if self._task.user is not None else ()
        argv = ("docker", "exec", *user, self._name, "bash", "-c", command)
        outcome = await supervise(argv, Limits(self._timeout_s))
        if outcome.stopped:
            await self._ask("restart", "--time", "0", self._name)
        return outcome

    async def verify(self) -> float:
        """The reward, from a fresh container with the agent's files."""
        image = f"{self._name}-end"
        await self._ask("commit", self._name, image)
        with tempfile.TemporaryDirectory(prefix="flwr-agent-harbor-", ignore_cleanup_errors=True) as folder:
            argv = verify_argv(self._task, f"{self._name}-verifier", image, Path(folder))
            try:
                outcome = await supervise(("docker", *argv), Limits(self._task.verifier_timeout_s))
            finally:
                await self._ask("rm", "--force", f"{self._name}-verifier", is_quiet=True)
                await self._ask("rmi", "--force", image, is_quiet=True)
            if outcome.stopped:
                raise EnvError(f"harbor: {self._task.name}: the verifier went beyond its limit of {outcome.stopped}")
            return reward.read(Path(folder))

    async def close(self) -> None:
        """Remove the container."""
        if self._is_started:
            self._is_started = False
            await self._ask("rm", "--force", self._name, is_quiet=True)

    async def _build(self) -> str:
        """The image of the task's Dockerfile, by its id."""
        said = await self._ask("build", "--quiet", str(self._task.folder / "environment"))
        return said.split()[-1]

    async def _ask(self, *argv: str, is_quiet: bool = False) -> str:
        outcome = await supervise(("docker", *argv), Limits(SETUP_TIMEOUT_S))
        if outcome.exit_code and not is_quiet:
            raise EnvError(f"harbor: docker {argv[0]}: {outcome.output.strip()[-300:]}")
        return outcome.output


def run_argv(task: TaskSpec, name: str, image: str) -> list[str]:
    """Arguments of `docker` that start the agent's container, which waits for commands."""
    workdir = ["--workdir", task.workdir] if task.workdir else []
    return ["run", "--detach", "--name", name, *_limited(task), *workdir, "--entrypoint", "sleep", image, "infinity"]


def verify_argv(task: TaskSpec, name: str, image: str, folder: Path) -> list[str]:
    """Arguments of `docker` that run the tests on an image of the agent's files; the reward goes to `folder`."""
    mounts = ["--volume", f"{task.folder / 'tests'}:/tests:ro", "--volume", f"{folder}:/logs/verifier"]
    env = [word for pair in (task.verifier_env or {}).items() for word in ("--env", "=".join(pair))]
    how = [*_limited(task), *mounts, *env, "--entrypoint", "bash"]
    return ["run", "--rm", "--name", name, *how, image, "/tests/test.sh"]


def _limited(task: TaskSpec) -> list[str]:
    """No network, no rights beyond a user's, bounded memory, processes and cores; and the task's variables."""
    env = [word for pair in (task.env or {}).items() for word in ("--env", "=".join(pair))]
    return [
        *("--init", "--network", "none", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"),
        *("--memory", f"{task.memory_mb}m", "--memory-swap", f"{task.memory_mb}m", "--cpus", str(task.cpus)),
        *("--pids-limit", str(MAX_PROCESSES)),
        *env,
    ]
