"""What privacy costs: `python -m benchmarks.privacy [FOLDER] [KEY=VALUE ...]`.

TinyGuess with 50 clients in every round, which train adapters of rank 1: the same run with more and more noise, what it
spends and what it wins. Runs that are complete are not repeated.
"""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.arms import ledger_of, of_kind, show, success

CLIENTS, ROUNDS = 50, 6
SETTINGS = (
    "preset=tinyguess",
    f"federation.total_clients={CLIENTS}",
    f"federation.clients_per_round={CLIENTS}",
    f"federation.rounds={ROUNDS}",
    "evaluation.tasks=256",
    f"evaluation.every={ROUNDS}",
    "model.lora.rank=1",
    "trainer.tasks_per_step=2",
    "trainer.lr=0.01",
)
CLIP = 0.5
NOISES = (0.3, 1.0, 3.0)


def main(folder: Path, extra: list[str]) -> None:
    """Run what is missing under `folder` and print the table."""
    arms = {"none": []} | {f"{z:g}": [f"privacy.noise_multiplier={z}", f"privacy.clip={CLIP}"] for z in NOISES}
    rows = [("noise / clip", "epsilon at delta 1e-5", "success before", f"after {ROUNDS} rounds")]
    for name, settings in arms.items():
        ledger = ledger_of(folder / f"noise-{name}", [*SETTINGS, *settings, *extra])
        first, *_, last = of_kind(ledger, "evaluation")
        spent = of_kind(ledger, "round")[-1]["privacy"]
        rows.append((name, f"{spent['epsilon']:.3g}" if spent else "unlimited", success([first]), success([last])))
    show(rows)


if __name__ == "__main__":
    where, *settings = [*sys.argv[1:], *(["runs/privacy"] if len(sys.argv) < 2 else [])]
    main(Path(where).absolute(), settings)
