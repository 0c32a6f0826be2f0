"""Models that fill the memory: `python -m benchmarks.large_models [MIB] [REPEATS] [simulation|deployment|in-memory]`.

One round of clients (two, or `--clients N`) that add 1 to every weight: Flower's own FedAvg with Flower's records beside
our FedAvg as a plug-in in the same app (`by name`) and as a run of ours sends it (`ours`: in buckets, every reply
checked), in turns, in simulation and on a SuperLink with SuperNodes, with Flower's database or all in memory. Seconds
are of the round (requests sent to model made); memory is the largest resident size of each process, sampled five times a
second. Arrays are of 64 MiB each; `--array-kib N` makes them smaller, and more. `--sides` leaves some out; the first one
is what the last one is compared with.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
from rich.console import Console
from rich.table import Table

from flwr_agent.hosts import local
from flwr_agent.hosts.local import Federation, Flower
from flwr_agent.hosts.superlink import LaunchError
from flwr_agent.paths import ROOT
from flwr_agent.rl import launch

SIMULATION, DEPLOYMENT, IN_MEMORY = MODES = ("simulation", "deployment", "in-memory")
SIDES = ("stock", "by name", "ours")
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
clients = 2
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
from flwr_agent import protocol
from flwr_agent.arrays import from_record, to_record
from flwr_agent.config import resolve
from flwr_agent.requests import TrainReply
from strategies import FedAvg as Ours

client = ClientApp()
server = ServerApp()


@client.train()
def train(message, context):
    side = context.run_config["side"]
    if side == "ours":
        return protocol.answered(message, in_our_protocol)
    record = message.content["arrays"]
    if side == "stock":
        new = ArrayRecord({name: Array(array.numpy() + np.float32(1)) for name, array in record.items()})
    else:
        new = to_record({name: values + np.float32(1) for name, values in from_record(record).items()}, keep_input=False)
    return Message(RecordDict({"arrays": new, "metrics": MetricRecord({"num-examples": 1})}), reply_to=message)


def in_our_protocol(message):
    asked = protocol.train_request(message.content, {})
    new = {name: values + np.float32(1) for name, values in asked.arrays.items()}
    reply = TrainReply(round=asked.round, client_id=asked.client_id, arrays=new, num_examples=1)
    return Message(protocol.train_reply_content(asked, reply), reply_to=message)


@server.main()
def main(grid, context):
    keys = context.run_config
    n = keys["clients"]
    draw = np.random.default_rng(0)
    arrays = {f"w{i}": draw.standard_normal(keys["elements"], dtype=np.float32) for i in range(keys["tensors"])}
    before = float(arrays["w0"][0])
    record = to_record(arrays, keep_input=False)
    if keys["side"] == "stock":
        strategy = Stock(min_train_nodes=n, min_available_nodes=n, fraction_evaluate=0.0, min_evaluate_nodes=0)
    else:
        strategy = Ours(total_clients=n, clients_per_round=n, placement="any")
    while len(list(grid.get_node_ids())) < n:
        time.sleep(0.2)
    run = None
    if keys["side"] == "ours":
        run = protocol.run_record(resolve({}), experiment="large", base_digest="", in_buckets=True)
    start = time.monotonic()
    result = strategy.start(grid, record, num_rounds=1, timeout=1800, train_config=run)
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


def ended(flower: Flower, run: int, log: Path) -> str:
    """How a run ended. Its log says when: a command that asks is seconds of one core."""
    while True:
        with flower.link.log(run, log) as stream:
            while stream.poll() is None:
                time.sleep(0.5)
                flower.tend()
        with suppress(LaunchError):
            if (status := flower.link.status(run)).startswith("finished"):
                return status


def play(side: str, *, mib: int, array_kib: int, mode: str, clients: int) -> dict[str, float]:
    """Seconds of a round and GiB of each process."""
    with tempfile.TemporaryDirectory() as folder, watched() as peaks:
        app, out = Path(folder) / "large-model", Path(folder) / "seconds.json"
        app.mkdir()
        (app / "pyproject.toml").write_text(PROJECT)
        (app / "app.py").write_text(APP)
        tensors, elements = max(1, mib * 1024 // array_kib), array_kib * 256
        settings = {"side": side, "tensors": tensors, "elements": elements, "clients": clients, "out": str(out)}
        federation = Federation(
            num_nodes=clients, threads=1, is_deployment=mode != SIMULATION, in_memory=mode == IN_MEMORY, modules=(ROOT,)
        )
        with local.flower(federation, Path(folder) / "logs") as flower:
            run, log = flower.link.submit(app, settings, *federation.options()), Path(folder) / "run.log"
            status = ended(flower, run, log)
            if status != "finished:completed":
                raise SystemExit(f"{side}: {status}\n{launch.end_of(log)}")
        return {"seconds": json.loads(out.read_text())["seconds"], **peaks}


def main(*, mib: int, repeats: int, modes: list[str], array_kib: int, clients: int, sides: list[str]) -> None:
    """Print a table for each mode."""
    console = Console()
    for mode in modes:
        found = [
            {side: play(side, mib=mib, array_kib=array_kib, mode=mode, clients=clients) for side in sides}
            for _ in range(repeats)
        ]
        title = f"{mode}, {mib:g} MiB in arrays of {array_kib} KiB, {clients} clients, medians of {repeats}"
        table = Table("", *sides, f"{sides[-1]} / {sides[0]}", title=title)
        for row in found[0][sides[0]]:
            figures = [statistics.median(run[side].get(row, 0.0) for run in found) for side in sides]
            unit = "" if row == "seconds" else ", GiB"
            table.add_row(f"{row}{unit}", *(f"{v:.2f}" for v in figures), f"{figures[-1] / figures[0]:.2f}")
        console.print(table)


if __name__ == "__main__":
    words = argparse.ArgumentParser()
    words.add_argument("mib", type=int, nargs="?", default=2048)
    words.add_argument("repeats", type=int, nargs="?", default=3)
    words.add_argument("modes", nargs="*", default=[SIMULATION, IN_MEMORY], metavar=" | ".join(MODES))
    words.add_argument("--array-kib", type=int, default=64 * 1024)
    words.add_argument("--clients", type=int, default=2)
    words.add_argument("--sides", nargs="+", choices=SIDES, default=list(SIDES))
    given = words.parse_args()
    if wrong := set(given.modes) - {*MODES}:
        words.error(f"no such mode: {', '.join(wrong)}; choose from {', '.join(MODES)}")
    main(**vars(given))
