"""One Harbor episode: commands until `submit` or the last one allowed, then the verifier's reward."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from envs.base import Step, Task
from envs.harbor.sandbox import Outcome, Sandbox
from envs.harbor.tasks import TaskSpec
from flwr_agent.errors import ConfigError

SUBMIT = "submit"
MAX_COMMAND_BYTES = 64 * 1024
"""A command's length beyond which it is not run; the kernel refuses twice as much."""

_STOPPED = {
    "time": "stopped: it ran too long",
    "memory": "stopped: it used too much memory",
    "output": "stopped: it printed too much",
    "storage": "stopped: the folders hold too much; the episode is over",
}


class Episode:
    """An `Env` that plays in a sandbox of its own."""

    def __init__(
        self,
        specs: Mapping[str, TaskSpec],
        to_sandbox: Callable[[TaskSpec], Sandbox],
        *,
        max_commands: int,
        threshold: float,
    ):
        self._specs = specs
        self._to_sandbox = to_sandbox
        self._max_commands = max_commands
        self._threshold = threshold
        self._sandbox: Sandbox | None = None
        self._task_id = ""
        self._num_left = 0

    async def reset(self, task: Task, *, seed: int) -> Step:  # noqa: ARG002  a task directory has no chance in it
        """Start `task` in a fresh sandbox; the seed changes nothing."""
        await self.close()
        if task.id not in self._specs:
            raise ConfigError("task", task.id, "lies not in env.data_path")
        spec = self._specs[task.id]
        self._task_id, self._num_left = task.id, self._max_commands
        self._sandbox = self._to_sandbox(spec)
        try:
            workdir = await self._sandbox.start()
        except BaseException:
            await self.close()
            raise
        text = f"{spec.instruction}\n\nWorking directory: {workdir}"
        return Step(text, info=self._info(0.0, instruction=spec.instruction))

    async def step(self, action: str) -> Step:
        """Run a command, or have the verifier judge; an episode that is over stays over.

        Raises:
            EnvError: the verifier gave no reward.
        """
        sandbox = self._sandbox
        if sandbox is None:
            return Step("", terminated=True, info=self._info(0.0))
        command = action.strip()
        if command == SUBMIT:
            return await self._judged(sandbox, "submitted", is_submitted=True)
        self._num_left -= 1
        text, is_over = await _executed(sandbox, command)
        if is_over:
            await self.close()
            return Step(text, terminated=True, info=self._info(0.0))
        if self._num_left == 0:
            return await self._judged(sandbox, text, is_submitted=False)
        return Step(text, info=self._info(0.0))

    async def close(self) -> None:
        """Remove the sandbox."""
        sandbox, self._sandbox = self._sandbox, None
        if sandbox is not None:
            await sandbox.close()

    async def _judged(self, sandbox: Sandbox, text: str, *, is_submitted: bool) -> Step:
        try:
            reward = await sandbox.verify()
        finally:
            await self.close()
        return Step(text, reward, terminated=is_submitted, truncated=not is_submitted, info=self._info(reward))

    def _info(self, reward: float, **more: Any) -> dict[str, Any]:
        return {"success": reward >= self._threshold, "task_score": reward, "task_id": self._task_id, **more}


async def _executed(sandbox: Sandbox, command: str) -> tuple[str, bool]:
    """What the agent sees of a command, and whether it ended the episode."""
    unfit = _unfit(command)
    if unfit:
        return unfit, False
    outcome = await sandbox.run(command)
    return _shown(outcome), outcome.stopped == "storage"


def _unfit(command: str) -> str:
    """Why a text is no command; empty when it can be one."""
    if not command:
        return "not run: no command"
    if "\0" in command:
        return "not run: a command holds no NUL character"
    try:
        is_long = len(command.encode()) > MAX_COMMAND_BYTES
    except UnicodeEncodeError:
        return "not run: a command must be valid Unicode"
    return f"not run: longer than {MAX_COMMAND_BYTES} bytes" if is_long else ""


def _shown(outcome: Outcome) -> str:
    note = f" ({_STOPPED[outcome.stopped]})" if outcome.stopped else ""
    return f"exit code {outcome.exit_code}{note}\n{outcome.output}".rstrip()
