"""What shorter replies cost: `python -m benchmarks.compression [FOLDER] [KEY=VALUE ...] [--jobs N]`.

The default run with weights, with deltas, and with deltas in bf16 and int8, three seeds each: bytes that come back and what
is learnt. Runs that are complete are not repeated.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.arms import Line, ledgers, of_kind, options, outcomes, show
from flwr_agent.arrays import load
from flwr_agent.report.statistics import difference

DELTA = ("strategy.payload=delta",)
ARMS = {
    "weights, fp32": (),
    "deltas, fp32": DELTA,
    "deltas, bf16": (*DELTA, "strategy.compression=bf16"),
    "deltas, int8": (*DELTA, "strategy.compression=int8"),
    "deltas, int8, error feedback": (*DELTA, "strategy.compression=int8", "strategy.error_feedback=true"),
}
PLAIN = "weights, fp32"
SEEDS = (42, 21, 84)
LAST = 2
"""Rounds whose mean is what a run has learnt."""
HEADER = (
    "replies", "bytes a reply", "share", "sampled", "to the first (95 %)", "greedy", "to the first (95 %)", "apart after round 1",
)  # fmt: skip


def main(folder: Path, extra: list[str], jobs: int) -> None:
    """Run what is missing under `folder` and print the table."""
    places = {arm: [folder / arm.replace(",", "").replace(" ", "-") / f"seed-{seed}" for seed in SEEDS] for arm in ARMS}
    runs = {
        place: [f"seed={seed}", *ARMS[arm], *extra, "checkpoint.milestone_every=1"]
        for arm, of_arm in places.items()
        for seed, place in zip(SEEDS, of_arm, strict=True)
    }
    found = ledgers(runs, jobs, keep=True)
    played = {arm: [found[place] for place in of_arm] for arm, of_arm in places.items()}
    first = [_moved(place) for place in places[PLAIN]]
    plain = _bytes(played[PLAIN])
    rows = [HEADER]
    for arm, of_arm in played.items():
        scores = [cell for mode in ("sampled", "greedy") for cell in _scores(of_arm, played[PLAIN], mode)]
        off = [apart(_moved(place), reference) for place, reference in zip(places[arm], first, strict=True)]
        size = _bytes(of_arm)
        rows.append((arm, f"{size:,.0f}", f"{size / plain:.3f}", *scores, f"{np.mean(off):.1e}"))
    show(rows)


def apart(moved: dict[str, np.ndarray], reference: dict[str, np.ndarray]) -> float:
    """Distance of two updates, in lengths of the second."""
    distance = sum(float(np.square(moved[name] - reference[name], dtype="f8").sum()) for name in reference)
    length = sum(float(np.square(values, dtype="f8").sum()) for values in reference.values())
    return (distance / length) ** 0.5


def _bytes(of_arm: Sequence[Sequence[Line]]) -> float:
    clients = [line for ledger in of_arm for line in of_kind(ledger, "client")]
    return float(np.mean([line["payload_bytes"] for line in clients if line["status"] == "accepted"]))


def _scores(of_arm: Sequence[Sequence[Line]], plain: Sequence[Sequence[Line]], mode: str) -> tuple[str, str]:
    """Success of every seed, and how far the arm is from the first, over seeds and tasks."""
    ours_SN, first_SN = (np.stack([_learnt(ledger, mode) for ledger in arm]) for arm in (of_arm, plain))
    mean, low, high = difference(ours_SN - first_SN)
    return " ".join(f"{value:.3f}" for value in ours_SN.mean(axis=1)), f"{mean:+.3f} ({low:+.3f} to {high:+.3f})"


def _learnt(ledger: Sequence[Line], mode: str) -> np.ndarray:
    return outcomes(of_kind(ledger, "evaluation")[-LAST:], mode)


def _moved(run: Path) -> dict[str, np.ndarray]:
    """What round 1 changed."""
    start, first = (load(run / f"round-{number:05}" / "model.safetensors") for number in (0, 1))
    return {name: values - start[name] for name, values in first.items()}


if __name__ == "__main__":
    given = options(__doc__, "runs/compression")
    main(given.folder, given.settings, given.jobs)
