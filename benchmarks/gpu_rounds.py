"""Does a worker grow? Many client-rounds in one process: `python -m benchmarks.gpu_rounds MODEL [ROUNDS]`."""

from __future__ import annotations

import sys

import numpy as np
import psutil

from benchmarks.gpu_pair import SETTINGS
from benchmarks.gpu_shape import client_round
from flwr_agent import presets
from flwr_agent.rl.heap import trim
from flwr_agent.rl.learner import Learner, initial_arrays

SETTLED = 10
"""Rounds after which whatever is loaded once is loaded."""


def main(model: str, rounds: int) -> None:
    """Play the rounds, each from the weights of the last, and print what stays in memory."""
    config = presets.load(SETTINGS | {"model.path": model, "federation.epochs_per_round": 1})
    learner, weights, process = Learner(config), initial_arrays(config), psutil.Process()
    tensors, resident = [], []
    for round_ in range(1, rounds + 1):
        _, facts, weights = client_round(learner, config, weights, round_)
        trim()  # as a worker does after every request
        tensors.append(facts["allocated_after_load"] / 2**20)
        resident.append(process.memory_info().rss / 1e6)
        if round_ == 1 or round_ % SETTLED == 0:
            say(f"round {round_}: {tensors[-1]:.1f} MiB of tensors after its load, {resident[-1]:.0f} MB resident")
    slope = np.polyfit(range(rounds - SETTLED), resident[SETTLED:], 1)[0]
    say(f"resident after round {SETTLED}: {slope:+.3f} MB a round")
    if tensors[0]:
        say(f"tensors after a load: at most {max(tensors) / tensors[0] - 1:+.2%} of the first")


def say(line: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 50)
