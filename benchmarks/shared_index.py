"""What a large catalogue costs many clients of one machine: `python -m benchmarks.shared_index [PRODUCTS] [CLIENTS]`.

All processes ask for the index at once. Memory is what a process holds for itself alone (USS), before the index is asked
for and after 300 queries.
"""

from __future__ import annotations

import multiprocessing
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing.synchronize import Barrier
from pathlib import Path

import psutil
from rich.console import Console
from rich.table import Table

from benchmarks.webshop_index import WORDS_PER_DOCUMENT, WORDS_PER_QUERY, texts
from envs.webshop import shared
from envs.webshop.bm25 import LUCENE, Index

NUM_QUERIES = 300
TIMEOUT_S = 900.0
"""How long the slowest process is waited for."""

_together: Barrier
"""Where the processes wait for each other: a page that others map too is nobody's own, while they have it."""


def enter(together: Barrier) -> None:
    """Begin a process of the pool."""
    global _together
    _together = together


def uss_mb() -> float:
    """Memory that this process shares with no other, in MB."""
    return psutil.Process().memory_full_info().uss / 1e6


def client(task: tuple[int, Path]) -> tuple[int, float, float, int]:
    """(indexes built, CPU seconds until the index is there, MB it adds, digest of the results) of one process."""
    num_products, folder = task
    shared.FOLDER = folder
    queries = list(texts(NUM_QUERIES, WORDS_PER_QUERY, "queries"))
    Index.build(texts(1_000, WORDS_PER_DOCUMENT, "warm-up")).search(queries[0], 50)
    builds = 0

    def documents() -> Iterator[str]:
        nonlocal builds
        builds += 1
        yield from texts(num_products, WORDS_PER_DOCUMENT, "documents")

    before, start = uss_mb(), time.process_time()
    index = shared.mapped("benchmark", lambda: Index.build(documents()), LUCENE)
    opened = time.process_time() - start
    hits = [tuple(index.search(query, 50)) for query in queries]
    _together.wait(TIMEOUT_S)
    grown = uss_mb() - before
    _together.wait(TIMEOUT_S)
    return builds, opened, grown, hash(tuple(hits))


def measure(num_products: int, num_clients: int) -> tuple[list[tuple[int, float, float, int]], float]:
    """What `client` says of each of `num_clients` processes that start together, builders first, and MB on disk."""
    spawn = multiprocessing.get_context("spawn")
    start = {"mp_context": spawn, "initializer": enter, "initargs": (spawn.Barrier(num_clients),)}
    with tempfile.TemporaryDirectory() as folder, ProcessPoolExecutor(num_clients, **start) as pool:
        found = sorted(pool.map(client, [(num_products, Path(folder))] * num_clients), reverse=True)
        return found, sum(file.stat().st_size for file in Path(folder).rglob("*.*")) / 1e6


def main(num_products: int, num_clients: int) -> None:
    """Print one row per process."""
    found, size_mb = measure(num_products, num_clients)
    table = Table(
        "indexes built", "CPU s", "own memory, MB", title=f"{num_products:,} products, {size_mb:.0f} MB on disk"
    )
    for builds, opened, grown, _ in found:
        table.add_row(str(builds), f"{opened:.2f}", f"{grown:+.1f}")
    Console().print(table)
    Console().print(
        f"{sum(row[0] for row in found)} built by {num_clients} processes; at most "
        f"{max(row[2] for row in found if not row[0]):.1f} MB for each that mapped it; "
        f"{len({row[3] for row in found})} distinct result list"
    )


if __name__ == "__main__":
    main(*([int(argument) for argument in sys.argv[1:3]] if len(sys.argv) > 2 else (100_000, 8)))
