"""What privacy costs: `python -m benchmarks.privacy [FOLDER] [KEY=VALUE ...] [--jobs N]`.

TinyGuess with 50 clients in every round, which train adapters of rank 1 with a frozen A: the same run with more and more
noise, what it spends, by our accountant and by Opacus', and what it wins. Tasks are played at the temperature of training.
Runs that are complete are not repeated.
"""

from __future__ import annotations

import math
from pathlib import Path

from opacus.accountants import RDPAccountant

from benchmarks.arms import interval, ledgers, of_kind, options, outcomes, show
from flwr_agent.report.statistics import gain

CLIENTS, ROUNDS = 50, 24
SETTINGS = (
    "preset=tinyguess",
    f"federation.total_clients={CLIENTS}",
    f"federation.clients_per_round={CLIENTS}",
    f"federation.rounds={ROUNDS}",
    "evaluation.tasks=256",
    "evaluation.temperature=1.0",
    "evaluation.every=8",
    "strategy.name=lora_frozen_a",
    "model.lora.rank=1",
    "trainer.tasks_per_step=2",
    "trainer.lr=0.05",
)
CLIP = 0.5
NOISES = (0.3, 1.0)
HEADER = (
    "noise / clip", "epsilon at delta 1e-5", "by Opacus", "success before", "after the last round", "gain (95 % low)", "greedy",
)  # fmt: skip


def main(folder: Path, extra: list[str], jobs: int) -> None:
    """Run what is missing under `folder` and print the table."""
    noisy = {f"{z:g}": [f"privacy.noise_multiplier={z}", f"privacy.clip={CLIP}"] for z in NOISES}
    arms = {"none": [], **noisy}
    runs = {folder / f"noise-{name}": [*SETTINGS, *settings, *extra] for name, settings in arms.items()}
    rows = [HEADER]
    for name, ledger in zip(arms, ledgers(runs, jobs).values(), strict=True):
        first, *_, last = of_kind(ledger, "evaluation")
        end = of_kind(ledger, "round")[-1]
        spent = end["privacy"].get("epsilon", math.inf)
        other = by_opacus(float(name), end["round"], end["privacy"]["delta"]) if end["privacy"] else math.inf
        before, after = outcomes([first]), outcomes([last])
        mean, low = gain(before, [after])
        scores = interval(before), interval(after), f"{mean:+.3f} ({low:+.3f})", interval(outcomes([last], "greedy"))
        rows.append((name, f"{spent:.4g}", f"{other:.4g}", *scores))
    show(rows)


def by_opacus(noise_multiplier: float, rounds: int, delta: float) -> float:
    """Epsilon of so many Gaussian mechanisms with every client in each, by an accountant that shares no code with ours."""
    accountant = RDPAccountant()
    accountant.history = [(noise_multiplier, 1.0, rounds)]
    return accountant.get_epsilon(delta)


if __name__ == "__main__":
    given = options(__doc__, "runs/privacy")
    main(given.folder, given.settings, given.jobs)
