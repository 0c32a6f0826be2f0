"""How fast the environments step and the shop searches: `python -m benchmarks.envs`."""

import asyncio
import itertools
import multiprocessing
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor

from benchmarks import shared_index, webshop_index
from envs import registry
from envs.base import EnvAdapter, Task
from envs.prompts import STYLES

LARGE = 100_000
"""Products of a large catalogue."""


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
    """Print what is measured here: steps, searches, and one large index for many processes.

    `benchmarks.alfworld`, `benchmarks.harbor` and `benchmarks.served` are for the others.
    """
    sys.stdout.write(f"{'environment':12} {'style':8} {'steps/s':>10}\n")
    for name, style in itertools.product(("tinyguess", "minihouse", "webshop"), STYLES):
        rate = steps_per_second(registry.create(name, {}, style=style))
        sys.stdout.write(f"{name:12} {style:8} {rate:>10,.0f}\n")
    for num_products in (1_000, LARGE):
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as fresh:
            built, grown, per_query = fresh.submit(webshop_index.measure, num_products).result()
        sys.stdout.write(f"{num_products:,} products: index {built:.1f} s, +{grown:.0f} MB, query {per_query:.2f} ms\n")
    shared_index.main(LARGE, 8)


if __name__ == "__main__":
    main()
