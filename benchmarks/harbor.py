"""What a Harbor command and a Harbor episode cost in the bubblewrap sandbox: `python -m benchmarks.harbor`."""

import asyncio
import resource
import sys
import time
from collections.abc import Awaitable, Sequence

from envs.base import Task
from envs.harbor import Harbor

NUM_COMMANDS = 100
NUM_EPISODES = 40


def cpu_s() -> float:
    """Seconds of CPU time of this process and of all that it has waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


async def timed(act: Awaitable[object]) -> float:
    """Milliseconds of wall time."""
    start = time.perf_counter()
    await act
    return 1000 * (time.perf_counter() - start)


def report(name: str, walls_ms: Sequence[float], cpu_before_s: float) -> None:
    """Print the median and the 90th percentile of wall times, and the mean CPU time."""
    ordered = sorted(walls_ms)
    cpu_ms = 1000 * (cpu_s() - cpu_before_s) / len(ordered)
    median, late = ordered[len(ordered) // 2], ordered[len(ordered) * 9 // 10]
    sys.stdout.write(f"{name:20} median {median:7.1f} ms  p90 {late:7.1f} ms  CPU {cpu_ms:6.1f} ms\n")


async def commands(adapter: Harbor) -> list[float]:
    """Run commands one after the other in one episode."""
    env = adapter.make()
    await env.reset(adapter.tasks("train")[0], seed=0)
    walls_ms = [await timed(env.step("true")) for _ in range(NUM_COMMANDS)]
    await env.close()
    return walls_ms


async def episode(adapter: Harbor, task: Task) -> None:
    """Play the oracle's episode: a reset, one command, the verifier."""
    env = adapter.make()
    await env.reset(task, seed=0)
    for action in adapter.oracle(task) or ():
        await env.step(action)
    await env.close()


async def episodes(adapter: Harbor, at_once: int) -> list[float]:
    """Play episodes by several players at once."""
    tasks = list(adapter.tasks("train"))[:NUM_EPISODES]

    async def player(number: int) -> list[float]:
        return [await timed(episode(adapter, task)) for task in tasks[number::at_once]]

    return [wall_ms for walls_ms in await asyncio.gather(*map(player, range(at_once))) for wall_ms in walls_ms]


async def main() -> None:
    """Print one row per measurement."""
    adapter = Harbor(max_commands=NUM_COMMANDS + 1)
    await episodes(adapter, 8)
    for name, measure in (
        ("command", commands(adapter)),
        ("episode", episodes(adapter, 1)),
        ("episode of 8 at once", episodes(adapter, 8)),
    ):
        before = cpu_s()
        report(name, await measure, before)


if __name__ == "__main__":
    asyncio.run(main())
