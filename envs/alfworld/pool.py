"""Worker processes and who plays in them: an episode leases a slot of one worker and gives it back at its end.

A game always goes to the same worker, so that it is translated once. A worker that dies or takes too long fails the
episodes it holds, and is replaced when the next episode starts.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import itertools
import json
import subprocess
import sys
import threading
import weakref
from concurrent.futures import Future
from pathlib import Path
from typing import IO, Any, cast

from envs.base import Task
from envs.minihouse.episode import Scene
from envs.minihouse.rules import Rules
from flwr_agent.errors import DataError, EnvError
from flwr_agent.seeds import seed_for

TIMEOUT_S = 120.0
"""Seconds a request may take, its wait for the requests before it included."""

_ROOT = Path(__file__).resolve().parents[2]
"""Where the package can be imported from."""
_DIED = {"error": "the worker process has died"}


class Worker:
    """One process, and the requests that wait for its answers."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "envs.alfworld.worker"],
            cwd=_ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )
        self._requests = cast(IO[str], self._process.stdin)
        self._waiting: dict[int, Future[dict[str, Any]]] = {}
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self._free_slots: list[int] = []
        self._num_slots = 0
        threading.Thread(target=_read, args=(self._process.stdout, self._waiting, self._lock), daemon=True).start()

    @property
    def is_alive(self) -> bool:
        """Whether the process runs."""
        return self._process.poll() is None

    def take_slot(self) -> int:
        """A slot nobody plays in."""
        with self._lock:
            if self._free_slots:
                return self._free_slots.pop()
            self._num_slots += 1
            return self._num_slots - 1

    def give_slot(self, slot: int) -> None:
        """Give a slot back."""
        with self._lock:
            self._free_slots.append(slot)

    async def ask(self, **request: Any) -> Scene:
        """The scene a request leads to.

        Raises:
            EnvError: if the engine fails, the process dies, or the answer takes longer than `TIMEOUT_S`.
            DataError: if the game file is malformed.
        """
        try:
            reply = await asyncio.wait_for(asyncio.wrap_future(self._send(request)), TIMEOUT_S)
        except TimeoutError as error:
            self.kill()
            raise EnvError(f"alfworld: no answer in {TIMEOUT_S:.0f} s; the worker was stopped") from error
        if "data_error" in reply:
            raise DataError(*reply["data_error"])
        if "error" in reply:
            raise EnvError(f"alfworld: {reply['error']}")
        text, admissible, is_won = reply["scene"]
        return Scene(text, tuple(admissible), is_won)

    def kill(self) -> None:
        """End the process at once."""
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        """Let the process end by itself, once it has answered what it was asked."""
        self._requests.close()
        self._process.wait()

    def _send(self, request: dict[str, Any]) -> Future[dict[str, Any]]:
        future: Future[dict[str, Any]] = Future()
        with self._lock:
            number = next(self._numbers)
            self._waiting[number] = future
            try:
                self._requests.write(json.dumps({"id": number, **request}) + "\n")
                self._requests.flush()
            except OSError:
                del self._waiting[number]
                future.set_result(_DIED)
        return future


def _read(replies: IO[str], waiting: dict[int, Future[dict[str, Any]]], lock: threading.Lock) -> None:
    """Hand each reply to the one who waits for it; at the end tell all who still wait."""
    for line in replies:
        reply = json.loads(line)
        with lock:
            future = waiting.pop(reply["id"])
        _resolve(future, reply)
    with lock:
        for future in waiting.values():
            _resolve(future, _DIED)
        waiting.clear()


def _resolve(future: Future[dict[str, Any]], reply: dict[str, Any]) -> None:
    if future.set_running_or_notify_cancel():
        future.set_result(reply)


class Pool:
    """Some workers, started when first needed, ended with the pool.

    Example:
        >>> pool = Pool(2)
        >>> engine = pool.engine(folder=None, rules=Rules())  # an `envs.minihouse.episode.Engine`
    """

    def __init__(self, num_workers: int):
        self._workers: list[Worker | None] = [None] * num_workers
        self._lock = threading.Lock()
        self._finalizer = weakref.finalize(self, _stop, self._workers)

    def engine(self, *, folder: Path | None, rules: Rules) -> SlotEngine:
        """An engine that leases a slot at its first game; game files lie in `folder`, without one worlds are generated."""
        return SlotEngine(self, folder, rules)

    def lease(self, task_id: str) -> Worker:
        """The worker that plays this game; a dead one is replaced."""
        place = seed_for("alfworld", task_id) % len(self._workers)
        with self._lock:
            worker = self._workers[place]
            if worker is None or not worker.is_alive:
                worker = self._workers[place] = Worker()
            return worker

    def close(self) -> None:
        """End all workers."""
        self._finalizer()


@functools.cache
def shared(num_workers: int) -> Pool:
    """The pool that every adapter of this process plays in: its clients share workers and translated games."""
    return Pool(num_workers)


def _stop(workers: list[Worker | None]) -> None:
    for worker in filter(None, workers):
        worker.stop()


class SlotEngine:
    """The engine of one episode: a slot in a worker, from its first game until it is closed."""

    def __init__(self, pool: Pool, folder: Path | None, rules: Rules):
        self._pool = pool
        self._rules = dataclasses.asdict(rules)
        self._folder = folder
        self._worker: Worker | None = None
        self._slot = 0

    async def load(self, task: Task) -> Scene:
        """Start the game of `task` in the worker it belongs to."""
        worker = self._pool.lease(task.id)
        if worker is not self._worker:
            await self.close()
            self._worker, self._slot = worker, worker.take_slot()
        where = {"game": str(self._folder / task.meta["game"])} if self._folder else {"world": task.id}
        return await worker.ask(slot=self._slot, rules=self._rules, **where)

    async def act(self, command: str) -> Scene:
        """Apply a command."""
        if self._worker is None:
            raise EnvError("alfworld: no game is loaded")
        return await self._worker.ask(slot=self._slot, command=command)

    async def close(self) -> None:
        """Give the slot back; may be called any number of times."""
        if self._worker is not None:
            self._worker.give_slot(self._slot)
            self._worker = None
