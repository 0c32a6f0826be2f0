"""Who plays in which slot: an episode leases one at its reset, keeps it while it is heard of, and gives it back once.

An episode is reserved before anything is awaited, so that a request that comes twice finds the first one's work: the
answer to the last request is a task that every copy of that request waits for. A step is therefore applied once,
whatever a client repeats and whenever it gives up.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from envs.base import Env, Step, Task
from flwr_agent.errors import EnvError

NUM_REMEMBERED = 10_000
"""Closed episodes that are remembered, so that a reset that arrives late does not start one again."""

logger = logging.getLogger(__name__)


class BusyError(EnvError):
    """No slot became free in time; ask again later."""


class LostError(EnvError):
    """The episode is not here: never begun, closed, expired, or of a server that has been started anew."""


@dataclass(eq=False, slots=True)
class Lease:
    """One episode: its environment, and the answer to its last request."""

    answer: asyncio.Task[Step | EnvError] = field(init=False)
    seq: int = 0
    """Number of the last request; the reset is 0."""
    has_slot: bool = False
    env: Env | None = None
    failure: EnvError | None = None
    """What broke the episode."""
    timer: asyncio.TimerHandle | None = None


@dataclass(kw_only=True, slots=True)
class Leases:
    """A bounded number of episodes at once.

    Every wait is bounded: for a slot by `wait_s`, for the environment by `step_s`, for a silent client by `ttl_s`.
    """

    slots: int
    wait_s: float = 30.0
    """Seconds a reset waits for a slot."""
    step_s: float = 60.0
    """Seconds an environment may take for one request."""
    ttl_s: float = 600.0
    """Seconds after its last request at which an episode is ended."""
    num_taken: int = field(init=False, default=0)
    """Slots in use now."""
    _free: asyncio.Semaphore = field(init=False)
    _leases: dict[str, Lease] = field(init=False, default_factory=dict)
    _closed: dict[str, None] = field(init=False, default_factory=dict)
    _ending: set[asyncio.Task[None]] = field(init=False, default_factory=set)
    _is_over: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        self._free = asyncio.Semaphore(self.slots)

    async def reset(self, episode: str, make: Callable[[], Env], task: Task, *, seed: int) -> Step:
        """Begin an episode in a slot of its own; a repeated reset gets the first one's answer.

        Raises:
            BusyError: no slot became free in `wait_s` seconds.
            LostError: the episode was closed, or has gone on since.
            EnvError: the environment failed.
        """
        lease = self._leases.get(episode)
        if lease is None:
            if episode in self._closed or self._is_over:
                raise LostError("the episode is closed, or the server is stopping")
            lease = self._leases[episode] = Lease()
            lease.answer = asyncio.ensure_future(self._begin(episode, lease, _reset(lease, make, task, seed)))
        elif lease.seq:
            raise LostError(f"the episode has gone on to request {lease.seq}")
        return await self._answer(episode, lease)

    async def step(self, episode: str, seq: int, action: str) -> Step:
        """Apply request number `seq` (1 is the first action) unless that was done; its answer either way.

        Raises:
            LostError: no such episode, or `seq` is neither the last request nor the one after it.
            EnvError: the environment failed, now or before.
        """
        lease = self._leases.get(episode)
        if lease is None:
            raise LostError("the episode is closed or was never begun here")
        if seq == lease.seq + 1 and lease.answer.done():
            lease.seq = seq
            lease.answer = asyncio.ensure_future(self._act(lease, action))
        elif seq != lease.seq or seq == 0:
            raise LostError(f"request {seq} does not follow request {lease.seq}")
        return await self._answer(episode, lease)

    def close(self, episode: str) -> None:
        """End an episode; its slot is free once what it is doing is over. May be called any number of times."""
        self._closed[episode] = None
        if len(self._closed) > NUM_REMEMBERED:
            del self._closed[next(iter(self._closed))]
        if lease := self._leases.pop(episode, None):
            _stop(lease.timer)
            ending = asyncio.ensure_future(self._end(lease))
            self._ending.add(ending)
            ending.add_done_callback(self._ending.discard)

    def expire(self, episode: str, *, after_s: float) -> None:
        """End an episode unless it is heard of again in `after_s` seconds."""
        if lease := self._leases.get(episode):
            _stop(lease.timer)
            lease.timer = asyncio.get_running_loop().call_later(after_s, self.close, episode)

    async def aclose(self) -> None:
        """End all episodes, begin none any more, and wait until every slot is free."""
        self._is_over = True
        for episode in list(self._leases):
            self.close(episode)
        while self._ending:
            await asyncio.wait(self._ending)

    async def _answer(self, episode: str, lease: Lease) -> Step:
        self.expire(episode, after_s=self.ttl_s)
        try:
            answer = await asyncio.shield(lease.answer)
        except asyncio.CancelledError:
            if lease.answer.cancelled():
                raise LostError("the episode is closed") from None
            raise
        if isinstance(answer, EnvError):
            raise answer
        return answer

    async def _begin(self, episode: str, lease: Lease, play: Callable[[], Awaitable[Step]]) -> Step | EnvError:
        try:
            async with asyncio.timeout(self.wait_s):
                await self._free.acquire()
        except TimeoutError:
            if self._leases.get(episode) is lease:
                _stop(self._leases.pop(episode).timer)
            return BusyError(f"all {self.slots} slots are taken")
        lease.has_slot = True
        self.num_taken += 1
        return await self._bounded(lease, play)

    async def _act(self, lease: Lease, action: str) -> Step | EnvError:
        if lease.failure or lease.env is None:
            return lease.failure or LostError("the episode was never begun")
        return await self._bounded(lease, functools.partial(lease.env.step, action))

    async def _bounded(self, lease: Lease, play: Callable[[], Awaitable[Step]]) -> Step | EnvError:
        """The environment boundary: what it raises, or takes too long for, is an answer that ends the episode."""
        try:
            async with asyncio.timeout(self.step_s):
                return await play()
        except TimeoutError:
            lease.failure = EnvError(f"no answer of the environment in {self.step_s:g} s")
        except Exception as error:  # noqa: BLE001 (the environment boundary)
            lease.failure = EnvError(f"{type(error).__name__}: {error}")
        return lease.failure

    async def _end(self, lease: Lease) -> None:
        if not lease.has_slot:
            lease.answer.cancel()
        await asyncio.wait({lease.answer})
        if not lease.has_slot:
            return
        try:
            async with asyncio.timeout(self.step_s):
                if lease.env:
                    await lease.env.close()
        except Exception:  # the environment boundary
            logger.warning("an environment could not be closed", exc_info=True)
        finally:
            self.num_taken -= 1
            self._free.release()


def _reset(lease: Lease, make: Callable[[], Env], task: Task, seed: int) -> Callable[[], Awaitable[Step]]:
    async def play() -> Step:
        lease.env = make()
        return await lease.env.reset(task, seed=seed)

    return play


def _stop(timer: asyncio.TimerHandle | None) -> None:
    if timer:
        timer.cancel()
