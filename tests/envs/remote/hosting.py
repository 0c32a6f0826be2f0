"""Servers in threads of their own, a way to it that breaks connections, and an environment that counts."""

from __future__ import annotations

import asyncio
import http.server
import json
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from envs import registry
from envs.base import Step, Task
from envs.remote.leases import Leases
from envs.remote.server import Make, serving
from envs.tinyguess import TinyGuess

TOKEN = "a token that only these tests know"  # noqa: S105


@dataclass(frozen=True)
class Hosted:
    port: int
    digest: str
    leases: Leases
    token_file: str

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def settings(self) -> dict[str, object]:
        return {"url": self.url, "token_file": self.token_file, "timeout_s": 60.0}


def builder(name: str, **settings: object) -> Make:
    return lambda style, variant: registry.create(name, settings, style=style, variant=variant)


@contextmanager
def in_thread(main) -> Iterator[object]:
    """Run `async with main()` in an event loop of its own thread; gives what it yields."""
    loop, ready, box = asyncio.new_event_loop(), threading.Event(), {}

    async def live():
        box["stop"] = asyncio.Event()
        try:
            async with main() as box["value"]:
                ready.set()
                await box["stop"].wait()
        finally:
            ready.set()

    thread = threading.Thread(target=lambda: loop.run_until_complete(live()))
    thread.start()
    ready.wait()
    try:
        yield box["value"]
    finally:
        loop.call_soon_threadsafe(box["stop"].set)
        thread.join()
        loop.close()


@contextmanager
def hosted(make: Make, folder: Path, *, port: int = 0, leases: Leases | None = None) -> Iterator[Hosted]:
    leases = leases or Leases(slots=64)
    (folder / "token").write_text(TOKEN)
    with in_thread(lambda: serving(make, leases, host="127.0.0.1", port=port, token=TOKEN)) as served:
        yield Hosted(served.port, served.digest, leases, str(folder / "token"))


@contextmanager
def judge(status: int, body: bytes) -> Iterator[tuple[str, list[object]]]:
    """An HTTP server that always says the same; gives its URL and what it was sent."""
    received: list[object] = []

    class Answer(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            received.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.do_GET()

        def do_GET(self):
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/judge", received
        finally:
            server.shutdown()
            thread.join()


class Relay:
    """A TCP relay that cuts connections at random: before a request arrives, or before its answer does."""

    def __init__(self, port: int, *, cut: float, seed: int):
        self.port, self.cut, self.draw = port, cut, random.Random(seed)
        self.num_cuts = 0

    async def __aenter__(self) -> int:
        self.server = await asyncio.start_server(self._relay, "127.0.0.1", 0, backlog=4096)
        return self.server.sockets[0].getsockname()[1]

    async def __aexit__(self, *_: object) -> None:
        self.server.close()

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            back, forth = await asyncio.open_connection("127.0.0.1", self.port)
            ways = [asyncio.create_task(self._copy(*way)) for way in ((reader, forth), (back, writer))]
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            for way in ways:
                way.cancel()
            for end in (forth, writer):
                end.transport.abort()

    async def _copy(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await source.read(1 << 16):
                if self.draw.random() < self.cut:
                    self.num_cuts += 1
                    return
                target.write(data)


class Tally:
    """Says how often it was stepped, and remembers misuse: a step during another, a step after the end."""

    live = 0
    misused: list[str] = []  # noqa: RUF012 (shared by all on purpose)

    def __init__(self, draw: random.Random | None = None):
        self.draw, self.count, self.is_busy, self.is_open = draw, 0, False, False

    async def reset(self, task: Task, *, seed: int) -> Step:
        assert not self.is_open
        self.is_open = True
        Tally.live += 1
        return await self._say(task.id)

    async def step(self, action: str) -> Step:
        if self.is_busy or not self.is_open:
            Tally.misused.append("busy" if self.is_busy else "closed")
        self.count += 1
        return await self._say(f"{action} {self.count}")

    async def close(self) -> None:
        if self.is_busy:
            Tally.misused.append("closed while busy")
        Tally.live -= self.is_open
        self.is_open = False

    async def _say(self, text: str) -> Step:
        self.is_busy = True
        try:
            if self.draw:
                await asyncio.sleep(self.draw.choice((0, 0, 0, 0.001, 0.02)))
        finally:
            self.is_busy = False
        return Step(text, info={"success": False, "task_score": 0.0, "instruction": text})


class Tallying(TinyGuess):
    """TinyGuess's tasks with tallies to play."""

    name = "tallying"

    def make(self):
        return Tally(random.Random(7))
