"""A client's round on recorded rows, alone or as rank 0 of a group: `python tests/recorded.py OUT.npz KEYS_AS_JSON`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
from fakes import config
from policies import policy, rewarded, save_policy

from flwr_agent.config import RunConfig
from flwr_agent.rl import critic, spawn
from flwr_agent.rl.trainer import Trainer
from flwr_agent.rl.weights import to_arrays, to_numpy

STEPS = 6
NUM_ROWS = 11
"""Odd, so that two ranks need a filler."""
Moved = dict[str, np.ndarray]
"""After minus before, by name; losses and norms of each step under `step/`."""


def play(run: RunConfig, *, skip: int = -1) -> Moved:
    """Two rounds from the same weights, the second of which is measured; step `skip` of it is left out."""
    others = spawn.start_ranks(run)
    trainer = Trainer.load(run)
    first = to_arrays(policy())
    values = to_arrays(critic.build(policy())) if trainer.critic else {}
    log: list[dict[str, float]] = []
    for round_ in range(2):
        log.clear()
        trainer.begin_round(first, critic=values, prox_mu=run.strategy.prox_mu)
        steps = [step for step in range(STEPS) if not (round_ and step == skip)]
        log += [trainer.train(rewarded(NUM_ROWS, step), seed=step) for step in steps]
    moved = {name: value - first[name] for name, value in trainer.weights().items()}
    if trainer.critic:
        moved |= {f"critic/{n}": v - values[n] for n, v in to_numpy(trainer.values("critic")).items()}
    spawn.end_ranks(others)
    names = [name for name in log[0] if name.endswith(("loss", "_norm", "kl", "entropy"))]
    return moved | {f"step/{name}": np.array([step[name] for step in log]) for name in names}


def main(out: str, keys: str) -> None:
    """Write what `play` gives."""
    folder = Path(out).with_suffix(".model")
    np.savez(out, **play(config(**json.loads(keys), model__path=save_policy(folder))))


if __name__ == "__main__":
    main(*sys.argv[1:])
