"""What averaging costs: `python -m benchmarks.aggregation [MILLIONS_OF_PARAMETERS] [CLIENTS]`.

From Flower records to a Flower record, ours (every value checked for NaN before it is folded) beside Flower's own, in
turns in one process, with the time that the memory alone would need: 12 bytes per parameter and client. Memory is what
the process grows by at most, in models: of ours in a turn of its own in which replies come one by one, without the one in
hand; of Flower's, which takes a list of all replies, without any of them.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, MetricRecord, RecordDict
from flwr.serverapp.strategy.strategy_utils import aggregate_arrayrecords
from rich.console import Console
from rich.table import Table

from flwr_agent.arrays import BLOCK, NUM_THREADS, check_like, from_record, to_record
from flwr_agent.requests import Arrays
from strategies.aggregate import Mean

NUM_TENSORS = 25
NUM_DISTINCT = 2
"""Distinct replies, larger than any cache; clients take turns with them, so that the machine need not hold ten models."""
REPEATS = 5
OURS, FLOWERS = "ours, checked", "Flower's FedAvg"
CLEAR_PEAK = Path("/proc/self/clear_refs")
"""Linux: writing 5 to it makes the present resident size the largest so far."""


def reply(seed: int, num_parameters: int) -> ArrayRecord:
    """A client's model."""
    draw = np.random.Generator(np.random.PCG64(seed))
    shape = (NUM_TENSORS, num_parameters // NUM_TENSORS)
    arrays: Arrays = {f"actor/{i}": draw.standard_normal(shape[1], dtype=np.float32) for i in range(shape[0])}
    return to_record(arrays, keep_input=False)


def arriving(replies: Iterable[ArrayRecord]) -> Iterable[ArrayRecord]:
    """Copies of replies, each made when it is asked for."""
    for record in replies:
        yield ArrayRecord(
            {name: Array(a.dtype, a.shape, a.stype, bytes(memoryview(a.data))) for name, a in record.items()}
        )


def ours(replies: Iterable[ArrayRecord], like: ArrayRecord) -> ArrayRecord:
    """Check and fold as a round does."""
    mean, base = Mean(), from_record(like)
    for record in replies:
        arrays = from_record(record)
        check_like(arrays, base)
        mean.add(arrays, 1.0)
        del record, arrays  # as a round lets go of a reply before it asks for the next
    return to_record(mean.value(), keep_input=False)


def flowers(replies: Sequence[ArrayRecord]) -> ArrayRecord:
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


@dataclass(frozen=True, slots=True)
class Cost:
    """What one run of a piece of work took."""

    seconds: float
    cpu_seconds: float
    peak_bytes: int
    """Growth of the resident size, at most."""


def cost_of(work: Callable[[], object]) -> Cost:
    """Run it once."""
    CLEAR_PEAK.write_text("5", encoding="ascii")
    before, wall, cpu = peak_bytes(), time.perf_counter(), time.process_time()
    work()
    return Cost(time.perf_counter() - wall, time.process_time() - cpu, peak_bytes() - before)


def peak_bytes() -> int:
    """Largest resident size since the peak was cleared."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) * 1024


def main(num_parameters: int, num_clients: int) -> None:
    """Print the table: of each, the fastest of some runs taken in turns, since other processes can only slow one down."""
    distinct = [reply(seed, num_parameters) for seed in range(NUM_DISTINCT)]
    replies = [distinct[i % NUM_DISTINCT] for i in range(num_clients)]
    works = {
        "memory alone": lambda: memory_only(num_parameters, num_clients),
        OURS: lambda: ours(replies, replies[0]),
        FLOWERS: lambda: flowers(replies),
    }
    costs = [{name: cost_of(work) for name, work in works.items()} for _ in range(REPEATS)]
    best = {name: min((cost[name] for cost in costs), key=lambda cost: cost.seconds) for name in works}
    model = 4 * num_parameters
    extra = {
        OURS: cost_of(lambda: ours(arriving(replies), replies[0])).peak_bytes / model - 1,
        FLOWERS: max(cost[FLOWERS].peak_bytes for cost in costs) / model,
    }
    table = Table("", "seconds", "CPU seconds", "GB/s", "peak extra, models")
    for name, cost in best.items():
        rate = 3 * model * num_clients / cost.seconds / 1e9
        memory = f"{extra[name]:.2f}" if name in extra else ""
        table.add_row(name, f"{cost.seconds:.2f}", f"{cost.cpu_seconds:.2f}", f"{rate:.1f}", memory)
    ahead, other = from_record(ours(replies, replies[0])), from_record(flowers(replies))
    difference = max(float(np.abs(ahead[name] - other[name]).max()) for name in ahead)
    console = Console()
    console.print(f"{num_clients} clients x {num_parameters / 1e6:g} M fp32 parameters, {NUM_THREADS} threads")
    console.print(table)
    slower = [cost[FLOWERS].seconds / cost[OURS].seconds for cost in costs]
    console.print(f"Flower's takes {statistics.median(slower):.1f} times as long (median of {REPEATS} turns)")
    console.print(f"largest difference between the two means: {difference:.1e}")


if __name__ == "__main__":
    millions, clients = [*sys.argv[1:], *("100", "10")[len(sys.argv) - 1 :]]
    main(int(millions) * 1_000_000, int(clients))
