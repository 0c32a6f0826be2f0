"""What averaging costs: `python -m benchmarks.aggregation [MILLIONS_OF_PARAMETERS] [CLIENTS]`.

From Flower records to a Flower record, ours (every value checked for NaN before it is folded) beside Flower's own, in
turns in one process, with the time that the memory alone would need: 12 bytes per parameter and client.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from flwr.app import ArrayRecord, MetricRecord, RecordDict
from flwr.serverapp.strategy.strategy_utils import aggregate_arrayrecords
from rich.console import Console
from rich.table import Table

from flwr_agent.arrays import BLOCK, NUM_THREADS, check_like, from_record, to_record
from flwr_agent.requests import Arrays
from strategies.aggregate import Mean

NUM_TENSORS = 25
NUM_DISTINCT = 2
"""Distinct replies, larger than any cache; clients take turns with them, so that the machine need not hold ten models."""
REPEATS = 3


def reply(seed: int, num_parameters: int) -> ArrayRecord:
    """A client's model."""
    draw = np.random.Generator(np.random.PCG64(seed))
    shape = (NUM_TENSORS, num_parameters // NUM_TENSORS)
    arrays: Arrays = {f"actor/{i}": draw.standard_normal(shape[1], dtype=np.float32) for i in range(shape[0])}
    return to_record(arrays, keep_input=False)


def ours(replies: list[ArrayRecord]) -> ArrayRecord:
    """Check and fold as a round does."""
    mean, base = Mean(), from_record(replies[0])
    for record in replies:
        arrays = from_record(record)
        check_like(arrays, base)
        mean.add(arrays, 1.0)
    return to_record(mean.value(), keep_input=False)


def flowers(replies: list[ArrayRecord]) -> ArrayRecord:
    """Flower's FedAvg."""
    weight = MetricRecord({"num-examples": 1})
    return aggregate_arrayrecords([RecordDict({"arrays": r, "metrics": weight}) for r in replies], "num-examples")


def memory_only(num_parameters: int, num_clients: int) -> None:
    """Read two operands and write one, per parameter and client, and nothing else."""
    size = min(num_parameters, 50_000_000)
    a, b = np.ones(size, np.float32), np.ones(size, np.float32)

    def add(start: int) -> None:
        for at in range(start, min(start + 16 * BLOCK, size), BLOCK):
            block = a[at : at + BLOCK]
            block += b[at : at + BLOCK]

    with ThreadPoolExecutor(NUM_THREADS) as pool:
        for _ in range(num_clients * num_parameters // size):
            list(pool.map(add, range(0, size, 16 * BLOCK)))


def best(work: Callable[[], object]) -> tuple[float, float]:
    """Wall and CPU seconds of the fastest of a few runs: other processes can only slow one down."""
    found = []
    for _ in range(REPEATS):
        wall, cpu = time.perf_counter(), time.process_time()
        work()
        found.append((time.perf_counter() - wall, time.process_time() - cpu))
    return min(found)


def main(num_parameters: int, num_clients: int) -> None:
    """Print the table."""
    distinct = [reply(seed, num_parameters) for seed in range(NUM_DISTINCT)]
    replies = [distinct[i % NUM_DISTINCT] for i in range(num_clients)]
    table = Table("", "seconds", "CPU seconds")
    works = {
        "memory alone": lambda: memory_only(num_parameters, num_clients),
        "ours": lambda: ours(replies),
        "Flower": lambda: flowers(replies),
    }
    for name, work in works.items():
        table.add_row(name, *(f"{seconds:.2f}" for seconds in best(work)))
    ahead, other = from_record(ours(replies)), from_record(flowers(replies))
    difference = max(float(np.abs(ahead[name] - other[name]).max()) for name in ahead)
    console = Console()
    console.print(f"{num_clients} clients x {num_parameters / 1e6:g} M fp32 parameters, {NUM_THREADS} threads")
    console.print(table)
    console.print(f"largest difference between the two means: {difference:.1e}")


if __name__ == "__main__":
    millions, clients = [*sys.argv[1:], *("100", "10")[len(sys.argv) - 1 :]]
    main(int(millions) * 1_000_000, int(clients))
