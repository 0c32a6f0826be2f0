"""What a Harbor command and a Harbor episode cost in the bubblewrap sandbox: `python -m benchmarks.harbor`."""

import asyncio
import resource
import sys
import time
from collections.abc import Awaitable, Callable

from envs.harbor import Harbor

NUM_COMMANDS = 100
NUM_EPISODES = 40


def cpu_s() -> float:
    """Seconds of CPU time of this process and of all that it has waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


async def measured(name: str, count: int, act: Callable[[], Awaitable[object]]) -> None:
    """Print milliseconds of wall and CPU time of each of `count` things that `act` does in one call."""
    start, cpu = time.perf_counter(), cpu_s()
    await act()
    wall_ms, cpu_ms = (1000 * spent / count for spent in (time.perf_counter() - start, cpu_s() - cpu))
    sys.stdout.write(f"{name:24} {wall_ms:8.1f} ms wall {cpu_ms:8.1f} ms CPU\n")


async def commands(adapter: Harbor) -> None:
    """Run commands one after the other in one episode."""
    env = adapter.make()
    await env.reset(adapter.tasks("train")[0], seed=0)
    for _ in range(NUM_COMMANDS):
        await env.step("true")
    await env.close()


async def episodes(adapter: Harbor, at_once: int) -> None:
    """Play the oracle's episodes: a reset, one command, the verifier."""
    tasks = list(adapter.tasks("train"))[:NUM_EPISODES]

    async def player(number: int) -> None:
        for task in tasks[number::at_once]:
            env = adapter.make()
            await env.reset(task, seed=0)
            for action in adapter.oracle(task) or ():
                await env.step(action)
            await env.close()

    await asyncio.gather(*map(player, range(at_once)))


async def main() -> None:
    """Print one row per measurement."""
    adapter = Harbor(max_commands=NUM_COMMANDS + 1)
    await commands(adapter)
    await measured("command", NUM_COMMANDS, lambda: commands(adapter))
    await measured("episode", NUM_EPISODES, lambda: episodes(adapter, 1))
    await measured("episode, 8 at once", NUM_EPISODES, lambda: episodes(adapter, 8))


if __name__ == "__main__":
    asyncio.run(main())
