"""How fast the environments step: `python -m benchmarks.envs`."""

import asyncio
import itertools
import sys
import time
from collections.abc import Sequence

from envs import registry
from envs.base import EnvAdapter, Task
from envs.prompts import STYLES


async def play(adapter: EnvAdapter, plans: Sequence[tuple[Task, Sequence[str]]]) -> int:
    """Play every plan to its end; the number of resets and steps."""
    env, count = adapter.make(), 0
    for task, actions in plans:
        await env.reset(task, seed=0)
        for action in actions:
            await env.step(action)
        count += 1 + len(actions)
    return count


def steps_per_second(adapter: EnvAdapter, num_tasks: int = 1_000) -> float:
    """Resets and steps per second of CPU time on one core, along the oracle's way."""
    plans = [(task, adapter.oracle(task) or ()) for task in adapter.tasks("train")[:num_tasks]]
    start = time.process_time()
    count = asyncio.run(play(adapter, plans))
    return count / (time.process_time() - start)


def main() -> None:
    """Print one row per built-in environment and prompt style; `benchmarks.alfworld` and `benchmarks.harbor` are for those two."""
    sys.stdout.write(f"{'environment':12} {'style':8} {'steps/s':>10}\n")
    for name, style in itertools.product(sorted(registry.BUILTIN.keys() - {"alfworld", "harbor"}), STYLES):
        rate = steps_per_second(registry.create(name, {}, style=style))
        sys.stdout.write(f"{name:12} {style:8} {rate:>10,.0f}\n")


if __name__ == "__main__":
    main()
