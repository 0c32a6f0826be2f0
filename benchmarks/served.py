"""Environments served to another process: `python -m benchmarks.served`, and `... served soak [SECONDS]`.

The first prints messages a second by sessions at once; the second plays 64 episodes at once for a while and watches
the memory of both processes.
"""

import asyncio
import itertools
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from envs import registry
from envs.base import EnvAdapter, View
from flwr_agent.errors import EnvError
from flwr_agent.paths import ROOT

SESSIONS = (1, 16, 64)
MIB = 1 << 20


@contextmanager
def served(env: str) -> Iterator[tuple[psutil.Process, EnvAdapter]]:
    """`python -m flwr_agent serve` in a process of its own, and an adapter that plays there."""
    with tempfile.TemporaryDirectory() as folder:
        token = Path(folder) / "token"
        token.write_text("a token of this benchmark")
        command = [sys.executable, "-m", "flwr_agent", "serve", "--env", env, "--token-file", str(token)]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603
            try:
                url = process.stdout.readline().split()[3]
                yield psutil.Process(process.pid), registry.create("remote", {"url": url, "token_file": str(token)})
            finally:
                process.terminate()


@dataclass(slots=True)
class Played:
    """What has been played so far."""

    episodes: int = 0
    messages: int = 0
    """Resets and steps."""
    failed: int = 0


async def play(adapter: EnvAdapter, *, at_once: int, seconds: float, played: Played) -> None:
    """Play the oracle's way through the training tasks, `at_once` episodes at a time, for a while."""
    tasks = adapter.tasks("train")[:200]
    plans = itertools.cycle([(task, adapter.oracle(task) or ()) for task in tasks])
    end = time.monotonic() + seconds

    async def session() -> None:
        while time.monotonic() < end:
            task, actions = next(plans)
            env = adapter.make()
            try:
                await env.reset(task, seed=0)
                for action in actions:
                    await env.step(action)
                played.messages += 1 + len(actions)
            except EnvError:
                played.failed += 1
            await env.close()
            played.episodes += 1

    await asyncio.gather(*(session() for _ in range(at_once)))


def speed(env: str, seconds: float = 5.0) -> None:
    """Print messages a second in this process and served, and prompts a second."""
    with served(env) as (server, there):
        for name, adapter in (("in process", registry.create(env, {})), ("served", there)):
            for at_once in SESSIONS:
                played, start, used = Played(), time.perf_counter(), (cpu(psutil.Process()), cpu(server))
                asyncio.run(play(adapter, at_once=at_once, seconds=seconds, played=played))
                rate = played.messages / (time.perf_counter() - start)
                here, its = (
                    (cpu(p) - u) / played.messages * 1e6 for p, u in zip((psutil.Process(), server), used, strict=True)
                )
                sys.stdout.write(
                    f"{env:10} {name:11} {at_once:3} at once: {rate:9,.0f}/s, {here:4.0f} us here, {its:4.0f} us there\n"
                )
        view, start, count = View("a task", "a page", None), time.perf_counter(), 500
        for _ in range(count):
            there.render(view)
        sys.stdout.write(f"{env:10} prompts rendered there: {count / (time.perf_counter() - start):,.0f}/s\n")


def cpu(process: psutil.Process) -> float:
    """CPU seconds used so far."""
    times = process.cpu_times()
    return times.user + times.system


@dataclass(frozen=True, slots=True)
class Soak:
    """What a soak has shown."""

    played: Played
    client_mib: list[float]
    """Resident size, sampled evenly over the time."""
    server_mib: list[float]
    num_taken: int
    """Slots that were still in use after the end."""


def soak(seconds: float, *, env: str = "webshop", at_once: int = 64, samples: int = 20) -> Soak:
    """Play `at_once` episodes at a time for `seconds`, watching the memory of client and server."""
    played, client_mib, server_mib = Played(), [], []

    async def watch(server: psutil.Process) -> None:
        for _ in range(samples):
            await asyncio.sleep(seconds / samples)
            client_mib.append(psutil.Process().memory_info().rss / MIB)
            server_mib.append(server.memory_info().rss / MIB)

    with served(env) as (server, adapter):

        async def both() -> None:
            await asyncio.gather(watch(server), play(adapter, at_once=at_once, seconds=seconds, played=played))

        asyncio.run(both())
        time.sleep(1.0)
        [one] = adapter.servers
        return Soak(played, client_mib, server_mib, one.health()["taken"])


def main(arguments: list[str]) -> None:
    """Print the figures."""
    if arguments[:1] != ["soak"]:
        for env in ("tinyguess", "webshop"):
            speed(env)
        return
    seconds = float(arguments[1]) if arguments[1:] else 600.0
    found = soak(seconds)
    sys.stdout.write(
        f"{seconds:.0f} s, 64 at once: {found.played.episodes:,} episodes, {found.played.messages:,} messages, "
        f"{found.played.failed} failed, {found.num_taken} slots taken afterwards\n"
    )
    for name, sizes in (("client", found.client_mib), ("server", found.server_mib)):
        sys.stdout.write(f"{name} MiB: {' '.join(f'{size:.1f}' for size in sizes)}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
