"""How fast the environments step: `python -m benchmarks.envs`."""

import asyncio
import sys
import time
from collections.abc import Sequence

from envs.base import EnvAdapter, Task
from envs.webshop import WebShop


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
    """Print one row per environment and prompt style."""
    rates = {style: f"{steps_per_second(WebShop(style=style)):,.0f}" for style in ("paper", "compact")}
    rows = [("environment", "style", "steps/s"), *((WebShop.name, style, rate) for style, rate in rates.items())]
    sys.stdout.writelines(f"{name:12} {style:8} {rate:>10}\n" for name, style, rate in rows)


if __name__ == "__main__":
    main()
