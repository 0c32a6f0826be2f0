"""A process that has to run: watched, and started again when it dies."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Self

import psutil

from flwr_agent.hosts.superlink import LaunchError
from flwr_agent.rl import launch

RESTART_S = 5.0
"""Seconds between the death of a process and its next start."""
STEADY_S = 60.0
"""A process that has run for so long did come up."""


class Service:
    """Runs a command inside a `with` block; `tend`, called now and then, starts it again when it has died.

    Example:
        >>> with Service(["flower-supernode", ...], cwd, env, log) as node:
        ...     while is_needed():
        ...         node.tend()
        ...         time.sleep(0.5)
    """

    def __init__(
        self,
        command: list[str],
        cwd: Path,
        env: Mapping[str, str],
        log: Path,
        *,
        max_restarts: int = 20,
        restart_s: float = RESTART_S,
    ) -> None:
        """Prepare.

        Args:
            command: what to run.
            cwd: its working directory.
            env: its environment.
            log: file that its output is appended to.
            max_restarts: deaths in a row after which it is given up; one that came up to stay begins a new row.
            restart_s: seconds between its death and its next start.
        """
        self.log = log
        self._command, self._cwd, self._env = command, cwd, env
        self._max_restarts, self._restart_s, self._deaths = max_restarts, restart_s, 0
        self._stack, self._process = ExitStack(), None
        self._started_at = 0.0
        self._died_at: float | None = None
        self.is_held = False
        """Killed, and not to be started again yet."""

    def __enter__(self) -> Self:
        self._start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def is_up(self) -> bool:
        """Whether the command runs."""
        return self._process is not None and self._process.poll() is None

    def has(self, program: str) -> bool:
        """Whether a process of this name is among those it has started."""
        return any(program in _program(process) for process in self._family())

    def kill(self) -> None:
        """End it and all it started at once, without a chance to tidy up; it stays down until `release`."""
        self.is_held = True
        for process in self._family():
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
        self._stack.close()

    def release(self) -> None:
        """Let a killed process be started again by the next `tend`."""
        self.is_held = False
        self._start()

    def tend(self) -> None:
        """Start it again some seconds after it died by itself.

        Raises:
            LaunchError: it has died more often than it may.
        """
        if self.is_held or self.is_up():
            return
        if self._died_at is None:
            self._died_at = time.monotonic()
            is_new_row = self._died_at >= self._started_at + STEADY_S
            self._deaths = 1 if is_new_row else self._deaths + 1
        if self._deaths > self._max_restarts:
            raise LaunchError(f"{self.log.stem} ended: {launch.end_of(self.log)} (log: {self.log})")
        if time.monotonic() >= self._died_at + self._restart_s:
            self._start()

    def _start(self) -> None:
        self._stack.close()
        self._died_at, self._started_at = None, time.monotonic()
        self._process = self._stack.enter_context(launch.supervised(self._command, self._cwd, self._env, self.log))

    def _family(self) -> list[psutil.Process]:
        """The command and what it started; its supervisor is not one of them."""
        if self._process is None or not self.is_up():
            return []
        try:
            return psutil.Process(self._process.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []


def _program(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline()[:2])
    except psutil.Error:
        return ""
