"""What a client's shard costs at the published scale: `python -m benchmarks.partition`.

Every strategy runs in a fresh process: CPU seconds of one client's shard with nothing cached (imports excluded), then
of all 100 clients, and the process's peak memory.
"""

from __future__ import annotations

import json
import multiprocessing
import resource
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from envs.base import Task
from envs.partition import shard
from envs.partition.registry import find

NUM_CLIENTS = 100
POOLS = {"webshop": 6900, "minihouse": 3553}
KNOBS: dict[str, dict[str, Any]] = {
    "uniform": {},
    "preference": {"omega": 0.5},
    "coverage": {"size_std": 1.0},
    "hardness": {"success_std": 1.0},
    "catalog_split": {"env_div": 0.7, "keep_ratio": 0.7},
    "scene_disjoint": {"env_div": 0.7},
    "rank_wrapper": {},
}
"""Strategy -> what it needs beside `tasks_per_client`; `rank_wrapper` stands for all arms with n frozen worlds."""


def pool(size: int) -> list[Task]:
    """Tasks with every key that a partition asks for: 6 categories, 415 products, 108 scenes."""
    scenes = [base + number for base in (0, 200, 300, 400) for number in range(1, 28)]
    return [
        Task(f"task-{i}", "train", {"category": f"c{i % 6}", "asin": f"B{i % 415:09d}", "scene": scenes[i % 108]})
        for i in range(size)
    ]


def labels(tasks: list[Task], folder: Path) -> str:
    """A labels file in which 28 % of the tasks were solved, as in the published one."""
    rows = [{"task_info": {"task_id": task.id}, "traj_info": {"success": i % 100 < 28}} for i, task in enumerate(tasks)]
    path = folder / "labels.json"
    path.write_text(json.dumps({"trajectories": rows}), encoding="utf-8")
    return str(path)


def measure(strategy: str, size: int, folder: Path) -> tuple[float, float, float]:
    """CPU seconds for one client and for all, peak MB; in a process that has done nothing else."""
    tasks = pool(size)
    values = {"tasks_per_client": 100, **KNOBS[strategy]}
    if strategy == "hardness":
        values["trajectories_file"] = labels(tasks, folder)
    find(strategy)
    start = time.process_time()
    shard(tasks, 0, NUM_CLIENTS, strategy, **values)
    one = time.process_time() - start
    for client in range(1, NUM_CLIENTS):
        shard(tasks, client, NUM_CLIENTS, strategy, **values)
    everyone = time.process_time() - start
    scale = 1 if sys.platform == "darwin" else 1024
    return one, everyone, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale / 1e6


def main() -> None:
    """Print one row per strategy and pool."""
    table = Table("strategy", "tasks", "one, s", f"all {NUM_CLIENTS}, s", "MB")
    spawn = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        for name, size in POOLS.items():
            for strategy in KNOBS:
                with ProcessPoolExecutor(1, mp_context=spawn) as fresh:
                    one, everyone, peak = fresh.submit(measure, strategy, size, Path(folder)).result()
                table.add_row(strategy, f"{size} {name}", f"{one:.3f}", f"{everyone:.2f}", f"{peak:.0f}")
    Console().print(table)


if __name__ == "__main__":
    main()
