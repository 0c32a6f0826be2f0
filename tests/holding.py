"""Points of a run at which it is held, so that a process can be killed exactly there.

Imported by the ServerApp as the strategy `holding:Held`; run as `worker.python` by a script that `worker_python` writes.
A folder `gate` beside the run folder says where: a file `2-training` holds round 2 there, once. Who is held writes its
process id to `reached`, and goes on when that file is gone.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import numpy as np

from strategies import FedAvg

SCRIPT = """#!{python}
import os, sys
if sys.argv[1:3] != ["-m", "flwr_agent.rl.remote"]:
    os.execv({python!r}, [{python!r}, *sys.argv[1:]])
sys.path.insert(0, {tests!r})
import holding
holding.main(*sys.argv[3:])
"""
"""A worker that can be held; to any other use it is the interpreter it stands in for."""
CLIENT = 1
"""Whose training is held."""


def hold(gate: Path, round_: int, point: str) -> None:
    """Stop here if the gate says so, the first time that anybody gets here."""
    try:
        mine = (gate / f"{round_}-{point}").rename(gate / "holding")
    except FileNotFoundError:
        return
    mine.write_text(str(os.getpid()))
    reached = mine.rename(gate / "reached")
    while reached.exists():
        time.sleep(0.02)


class Held(FedAvg):
    """FedAvg that can be held before it asks, before its server step and while its checkpoint is written."""

    @classmethod
    def from_config(cls, config):
        strategy = super().from_config(config)
        strategy.gate = Path(config.output_dir).parent / "gate"
        return strategy

    def configure_train(self, server_round, *rest):
        self.round = server_round
        hold(self.gate, self.round, "asking")
        return super().configure_train(server_round, *rest)

    def step(self, arrays, mean):
        hold(self.gate, self.round, "aggregating")
        return super().step(arrays, mean)

    def state_arrays(self):
        return {"held": _Slow(self)}

    def load_state(self, arrays):
        assert not arrays or list(arrays) == ["held"]


class _Slow:
    """An array that is held where its bytes are asked for: the model is written then, and this is not."""

    dtype, shape = np.dtype("<f4"), (1,)

    def __init__(self, strategy):
        self._strategy = strategy

    def __array__(self, dtype=None, copy=None):
        hold(self._strategy.gate, self._strategy.round, "saving")
        return np.zeros(1, "<f4")


def worker_python(folder: Path) -> Path:
    """A program that stands in for the interpreter of worker processes; the gate is the folder it is in."""
    script = folder / "python"
    script.write_text(SCRIPT.format(python=sys.executable, tests=str(Path(__file__).parent)))
    script.chmod(0o755)
    return script


def main(address: str, idle_timeout_s: str, owner: str) -> None:
    """Be a worker."""
    from flwr_agent.requests import TrainRequest
    from flwr_agent.rl import remote, worker
    from flwr_agent.rl.trainer import Trainer

    gate = Path(sys.argv[0]).parent
    serve, update, current = worker.serve, Trainer.train, []

    def held(request, point):
        if getattr(request, "client_id", CLIENT) == CLIENT:
            hold(gate, request.round, point)

    def held_serve(request):
        current[:] = [request]
        is_train = isinstance(request, TrainRequest)
        held(request, "asked" if is_train else "evaluating")
        reply = serve(request)
        if is_train:
            held(request, "answering")
        return reply

    def held_update(trainer, *rest, **named):
        held(current[0], "training")
        return update(trainer, *rest, **named)

    worker.serve, Trainer.train = held_serve, held_update
    remote.main(address, float(idle_timeout_s), int(owner))
