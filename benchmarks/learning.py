"""Does the federation learn? Three seeds, controls that must not, and yardsticks: `python -m benchmarks.learning`.

Another folder and settings behind it measure another arm: `python -m benchmarks.learning runs/learning-ppo preset=ppo`.
Each run is the embedded default through `python -m flwr_agent run`; its ledger is the only source of the table. Runs that
are complete are not repeated, so the command can be interrupted and given again.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.yardsticks import oracle, random_policy
from flwr_agent import presets
from flwr_agent.cli import overrides
from flwr_agent.report.statistics import gain, wilson

SEEDS = (42, 21, 84)
CONTROLS = {
    "control: lr = 0": ["trainer.lr=0.0"],
    "control: shuffled rewards": ["algorithm.reward=shuffled"],
}
IMITATION = {
    "imitation of own successes": [
        "algorithm.baseline=none",
        "algorithm.scale_rewards=none",
        "algorithm.reward_scale=1.0",
        "algorithm.invalid_penalty=0.0",
    ],
}


def main(folder: Path, extra: list[str]) -> None:
    """Run what is missing under `folder` and print the table."""
    is_grpo = presets.load(overrides.parse(extra)).algorithm.name == "grpo"
    arms = {f"seed {seed}": [f"seed={seed}"] for seed in SEEDS} | CONTROLS | (IMITATION if is_grpo else {})
    rows = [
        _row(name, _run(folder / re.sub("[^a-z0-9]+", "-", name), [*settings, *extra]))
        for name, settings in arms.items()
    ]
    header = (
        "run",
        "round 0 sampled",
        "last two",
        "gain (95 % low)",
        "round 0 greedy",
        "last two",
        "gain (95 % low)",
        "run, s",
    )
    _print([header, *rows])
    _print([("yardstick on the same tasks", "success (95 %)"), *_yardsticks(extra)])


def _run(folder: Path, settings: list[str]) -> list[dict[str, Any]]:
    ledger, seconds = folder / "ledger.jsonl", folder / "seconds.txt"
    if not seconds.is_file():
        start = time.perf_counter()
        command = [sys.executable, "-m", "flwr_agent", "run", f"output_dir={folder}", *settings]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)  # noqa: S603
        seconds.write_text(f"{time.perf_counter() - start:.0f}")
    lines = [json.loads(line) for line in ledger.read_text().splitlines()]
    return [line | {"run_s": seconds.read_text()} for line in lines if line["kind"] == "evaluation"]


def _row(name: str, evaluations: list[dict[str, Any]]) -> tuple[str, ...]:
    cells = [name]
    for mode in ("sampled", "greedy"):
        outcomes = [line["outcomes"][f"{mode}/success"] for line in evaluations]
        mean, low = gain(outcomes[0], outcomes[-2:])
        cells += [f"{_mean(outcomes[0]):.3f}", f"{_mean(outcomes[-1] + outcomes[-2]):.3f}", f"{mean:+.3f} ({low:+.3f})"]
    return (*cells, evaluations[0]["run_s"])


def _yardsticks(extra: list[str]) -> list[tuple[str, str]]:
    config = presets.load(overrides.parse(extra))
    return [("random admissible action", _interval(random_policy(config))), ("oracle", _interval(oracle(config)))]


def _interval(outcomes: list[float]) -> str:
    low, high = wilson(sum(outcomes), len(outcomes))
    return f"{_mean(outcomes):.3f} ({low:.3f} to {high:.3f})"


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def _print(rows: list[tuple[str, ...]]) -> None:
    header, *body = rows
    for row in [header, ("---",) * len(header), *body]:
        print(f"| {' | '.join(row)} |")  # noqa: T201
    print()  # noqa: T201


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "runs/learning").absolute(), sys.argv[2:])
