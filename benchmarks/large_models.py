"""Models that fill the memory: `python -m benchmarks.large_models [MIB] [REPEATS] [simulation|deployment]`.

One round of two clients that add 1 to every weight: Flower's own FedAvg with Flower's records beside our FedAvg with ours,
in turns, in simulation and on a SuperLink with two SuperNodes. Seconds are of the round (requests sent to model made);
memory is the largest resident size of each process, sampled five times a second.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
from rich.console import Console
from rich.table import Table

from flwr_agent.hosts import local
from flwr_agent.hosts.local import Federation
from flwr_agent.paths import ROOT
from flwr_agent.rl import launch

CLIENTS = 2
TENSOR_MIB = 64
SIDES = ("stock", "ours")
ROLES = {
    "flwr-simulation": "simulation (ServerApp)",
    "flwr-serverapp": "ServerApp",
    "flwr-clientapp": "ClientApp",
    "flower-supernode": "SuperNode",
    "flower-superlink": "SuperLink",
    "ray::": "simulated client",
}
"""What a command line holds -> what the process is."""
PROJECT = """
[project]
name = "large-model"
version = "1.0.0"
[tool.flwr.app]
publisher = "benchmark"
[tool.flwr.app.components]
serverapp = "app:server"
clientapp = "app:client"
[tool.flwr.app.config]
side = "stock"
tensors = 1
elements = 1
out = ""
"""
APP = """
import json, time
from pathlib import Path
import numpy as np
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg as Stock
from flwr_agent.arrays import from_record, to_record
from strategies import FedAvg as Ours

client = ClientApp()
server = ServerApp()


@client.train()
def train(message, context):
    record = message.content["arrays"]
    if context.run_config["side"] == "stock":
        new = ArrayRecord({name: Array(array.numpy() + np.float32(1)) for name, array in record.items()})
    else:
        new = to_record({name: values + np.float32(1) for name, values in from_record(record).items()}, keep_input=False)
    return Message(RecordDict({"arrays": new, "metrics": MetricRecord({"num-examples": 1})}), reply_to=message)


@server.main()
def main(grid, context):
    keys = context.run_config
    draw = np.random.default_rng(0)
    arrays = {f"w{i}": draw.standard_normal(keys["elements"], dtype=np.float32) for i in range(keys["tensors"])}
    before = float(arrays["w0"][0])
    record = to_record(arrays, keep_input=False)
    if keys["side"] == "stock":
        strategy = Stock(fraction_evaluate=0.0, min_evaluate_nodes=0)
    else:
        strategy = Ours(total_clients=2, clients_per_round=2, placement="any")
    while len(list(grid.get_node_ids())) < 2:
        time.sleep(0.2)
    start = time.monotonic()
    result = strategy.start(grid, record, num_rounds=1, timeout=1800)
    seconds = time.monotonic() - start
    moved = float(result.arrays["w0"].numpy()[0]) - before
    assert abs(moved - 1) < 1e-4, moved
    Path(keys["out"]).write_text(json.dumps({"seconds": seconds}))
"""


@contextmanager
def watched() -> Iterator[dict[str, float]]:
    """GiB of the largest process of each role among our descendants, while the block runs."""
    peaks: dict[str, float] = defaultdict(float)
    done = threading.Event()

    def watch() -> None:
        while not done.wait(0.2):
            for process in psutil.Process().children(recursive=True):
                try:
                    command, size = " ".join(process.cmdline()), process.memory_info().rss / 2**30
                except psutil.Error:
                    continue
                for mark, role in ROLES.items():
                    if mark in command:
                        peaks[role] = max(peaks[role], size)
                        break

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield peaks
    finally:
        done.set()
        thread.join()


def play(side: str, *, mib: int, is_deployment: bool) -> dict[str, float]:
    """Seconds of a round and GiB of each process."""
    with tempfile.TemporaryDirectory() as folder, watched() as peaks:
        app, out = Path(folder) / "large-model", Path(folder) / "seconds.json"
        app.mkdir()
        (app / "pyproject.toml").write_text(PROJECT)
        (app / "app.py").write_text(APP)
        settings = {"side": side, "tensors": max(1, mib // TENSOR_MIB), "elements": TENSOR_MIB * 2**18, "out": str(out)}
        federation = Federation(num_nodes=CLIENTS, threads=1, is_deployment=is_deployment, modules=(ROOT,))
        with local.flower(federation, Path(folder) / "logs") as flower:
            run, log = flower.link.submit(app, settings, *federation.options()), Path(folder) / "run.log"
            with flower.link.log(run, log):
                while not (status := flower.link.status(run)).startswith("finished"):
                    time.sleep(2)
            if status != "finished:completed":
                raise SystemExit(f"{side}: {status}\n{launch.end_of(log)}")
        return {"seconds": json.loads(out.read_text())["seconds"], **peaks}


def main(mib: int, repeats: int, modes: list[str]) -> None:
    """Print a table for each mode."""
    console = Console()
    for mode in modes:
        found = [
            {side: play(side, mib=mib, is_deployment=mode == "deployment") for side in SIDES} for _ in range(repeats)
        ]
        table = Table(
            "", *SIDES, "ours / stock", title=f"{mode}, {mib / 1024:g} GiB, {CLIENTS} clients, medians of {repeats}"
        )
        for row in found[0]["stock"]:
            stock, ours = (statistics.median(run[side].get(row, 0.0) for run in found) for side in SIDES)
            unit = "" if row == "seconds" else ", GiB"
            table.add_row(f"{row}{unit}", f"{stock:.2f}", f"{ours:.2f}", f"{ours / stock:.2f}")
        console.print(table)


if __name__ == "__main__":
    size, times, *modes = [*sys.argv[1:], *("2048", "3")[len(sys.argv) - 1 :]]
    main(int(size), int(times), modes or ["simulation", "deployment"])
