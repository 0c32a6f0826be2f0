"""What shorter replies cost: `python -m benchmarks.compression [FOLDER] [KEY=VALUE ...]`.

One run with weights, with deltas, and with deltas in bf16 and int8: bytes that come back and what is learnt. Runs that
are complete are not repeated.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from benchmarks.arms import ledger_of, of_kind, show, success
from flwr_agent.arrays import load

DELTA = ("strategy.payload=delta",)
ARMS = {
    "weights, fp32": (),
    "deltas, fp32": DELTA,
    "deltas, bf16": (*DELTA, "strategy.compression=bf16"),
    "deltas, int8": (*DELTA, "strategy.compression=int8"),
    "deltas, int8, error feedback": (*DELTA, "strategy.compression=int8", "strategy.error_feedback=true"),
}


def main(folder: Path, extra: list[str]) -> None:
    """Run what is missing under `folder` and print the table."""
    rows = [("replies", "bytes a reply", "share", "success, last two rounds", "greedy", "off the first after round 1")]
    plain, reference = 0.0, {}
    for name, settings in ARMS.items():
        run = folder / name.replace(",", "").replace(" ", "-")
        ledger = ledger_of(run, [*settings, *extra, "checkpoint.milestone_every=1"])
        replies = [line["payload_bytes"] for line in of_kind(ledger, "client") if line["status"] == "accepted"]
        start, first = load(run / "round-00000" / "model.safetensors"), load(run / "round-00001" / "model.safetensors")
        moved = {key: value - start[key] for key, value in first.items()}
        plain, reference = plain or np.mean(replies), reference or moved
        last = of_kind(ledger, "evaluation")[-2:]
        rows.append(
            (
                name,
                f"{np.mean(replies):,.0f}",
                f"{np.mean(replies) / plain:.3f}",
                success(last),
                success(last, "greedy"),
                f"{distance(moved, reference):.1e}",
            )
        )
    show(rows)


def distance(moved: dict[str, np.ndarray], reference: dict[str, np.ndarray]) -> float:
    """Of two updates, relative to the length of the second."""
    apart = sum(float(np.square(moved[name] - reference[name], dtype="f8").sum()) for name in reference)
    length = sum(float(np.square(values, dtype="f8").sum()) for values in reference.values())
    return (apart / length) ** 0.5


if __name__ == "__main__":
    where, *settings = [*sys.argv[1:], *(["runs/compression"] if len(sys.argv) < 2 else [])]
    main(Path(where).absolute(), settings)
