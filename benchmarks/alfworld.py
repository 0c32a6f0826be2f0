"""ALFWorld's stock engine against the fast one, on the same games in one process: `python -m benchmarks.alfworld`."""

import asyncio
import random
import resource
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from envs.alfworld import AlfWorld
from envs.alfworld.engine import GameEngine, open_engine
from envs.alfworld.worker import generated
from envs.base import Task

NUM_STEPS = 30


def timed(act: Any, *arguments: Any) -> tuple[float, Any]:
    """Seconds of CPU time that a call takes, and its result."""
    start = time.process_time()
    result = act(*arguments)
    return time.process_time() - start, result


def measure(engine: GameEngine, games: Sequence[Mapping[str, Any]], num_steps: int) -> dict[str, float]:
    """Medians over `games`: seconds of the first load, of a later one, and of a step."""
    first, again, step = [], [], []
    for number, game in enumerate(games):
        draw = random.Random(number)
        first.append(timed(engine.load, game)[0])
        seconds, scene = timed(engine.load, game)
        again.append(seconds)
        for _ in range(num_steps):
            seconds, scene = timed(engine.step, draw.choice(scene.admissible))
            step.append(seconds)
    medians = {"first load": first, "later load": again, "step": step}
    return {name: statistics.median(values) for name, values in medians.items()}


async def episodes_per_second(num_workers: int) -> float:
    """Episodes of the oracle a second of wall time through worker processes, their games known, 24 at a time."""
    adapter = AlfWorld(workers=num_workers)
    plans = [(task, adapter.oracle(task) or ()) for task in adapter.tasks("demo")[:6] for _ in range(4)]

    async def episode(task: Task, actions: Sequence[str]) -> None:
        env = adapter.make()
        await env.reset(task, seed=0)
        for action in actions:
            await env.step(action)
        await env.close()

    await asyncio.gather(*(episode(*plan) for plan in plans))
    start = time.perf_counter()
    for _ in range(4):
        await asyncio.gather(*(episode(*plan) for plan in plans))
    return 4 * len(plans) / (time.perf_counter() - start)


def main() -> None:
    """Print one row per engine, and their ratio."""
    games = [generated(f"demo-{number}") for number in range(6)]
    fast = open_engine()
    rows = {
        "stock": measure(open_engine(is_stock=True), games, 5),
        "fast": measure(fast, games, NUM_STEPS),
        "fast, games known": measure(fast, games, NUM_STEPS),
    }
    for name, row in rows.items():
        episodes = 1 / (row["later load"] + NUM_STEPS * row["step"])
        values = "".join(f"{1000 * value:12.2f}" for value in row.values())
        sys.stdout.write(f"{name:18}{values} ms {episodes:8.1f} episodes of {NUM_STEPS} steps/s\n")
    sys.stdout.write(f"step ratio {rows['stock']['step'] / rows['fast, games known']['step']:.0f}\n")
    for num_workers in (1, 2):
        rate = asyncio.run(episodes_per_second(num_workers))
        sys.stdout.write(f"{num_workers} workers: {rate:.0f} oracle episodes/s\n")
    sys.stdout.write(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB\n")


if __name__ == "__main__":
    main()
