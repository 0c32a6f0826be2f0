"""One answer at a time from an engine that decodes many: what lets every episode go at its own pace."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from flwr_agent.rl.generate import Completion, Generator, Request

SWITCH_S = 2e-4
"""Seconds after which a thread lets go of the interpreter: the engine wants it at every token, some milliseconds apart,
and Python's own 5 ms would let environments hold it up."""


class Desk:
    """Hands each answer to the episode that waits for it; the engine decodes in one thread meanwhile and never waits for us.

    One thread for all answers: CUDA's libraries keep a workspace for every thread that has used them.
    """

    def __init__(self, generator: Generator):
        self._generator = generator
        self._waiting: dict[int, asyncio.Future[Completion]] = {}
        self._news = threading.Event()
        self._is_closed = False

    async def answer(self, request: Request) -> Completion:
        """The answer to one request, whose key nobody else waits for."""
        future = asyncio.get_running_loop().create_future()
        self._waiting[request.key] = future
        self._generator.submit(request)
        self._news.set()
        return await future

    async def serve(self) -> None:
        """Decode while anybody waits, until the desk is closed; raises what the engine raises."""
        loop, interval = asyncio.get_running_loop(), sys.getswitchinterval()
        sys.setswitchinterval(SWITCH_S)
        thread = ThreadPoolExecutor(1, "engine")
        try:
            await loop.run_in_executor(thread, self._decode, loop)
        finally:
            sys.setswitchinterval(interval)
            thread.shutdown(wait=False)

    def _decode(self, loop: asyncio.AbstractEventLoop) -> None:
        while not self._is_closed:
            if found := self._generator.collect():
                loop.call_soon_threadsafe(self._hand_out, found)
            else:
                self._news.wait()
                self._news.clear()

    def _hand_out(self, found: Sequence[Completion]) -> None:
        for completion in found:
            future = self._waiting.pop(completion.key)
            if not future.done():
                future.set_result(completion)

    def close(self) -> None:
        """Let `serve` return once the engine is through with what it is at."""
        self._is_closed = True
        self._news.set()
