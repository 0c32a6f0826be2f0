"""Does the federation learn? Three seeds, controls that must not, and yardsticks: `python -m benchmarks.learning`.

Another folder and settings behind it measure another arm: `python -m benchmarks.learning runs/learning-ppo preset=ppo`.
Each run is the embedded default through `python -m flwr_agent run`; its ledger is the only source of the table. Runs that
are complete are not repeated, so the command can be interrupted and given again; `--jobs N` runs N side by side.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from benchmarks import repeated
from benchmarks.arms import interval, options, show
from benchmarks.yardsticks import oracle, random_policy
from flwr_agent import presets
from flwr_agent.cli import overrides
from flwr_agent.report.runs import Line, Run
from flwr_agent.report.statistics import gain

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
START, NUM_TASKS = (0.10, 0.40), 256
GAINS, BOUND = {"sampled": 0.25, "greedy": 0.15}, 0.15
"""What one seed must show: success before round 1, held-out tasks, gain by decoding mode, lower end of its interval."""
HEADER = (
    "run",
    "round 0 sampled",
    "last two",
    "gain (95 % low)",
    "round 0 greedy",
    "last two",
    "gain (95 % low)",
    "learnt",
    "run, s",
)


def main() -> None:
    """Run what is missing and print the table."""
    given = options(__doc__, "runs/learning")
    runs = {given.folder / _name(arm): [*settings, *given.settings] for arm, settings in _arms(given.settings).items()}
    repeated.finish(runs, given.jobs)
    show([HEADER, *(_row(arm, given.folder / _name(arm)) for arm in _arms(given.settings))])
    show([("yardstick on the same tasks", "success (95 %)"), *_yardsticks(given.settings)])
    print(repeated.machines(runs))  # noqa: T201


def _arms(extra: list[str]) -> dict[str, list[str]]:
    is_grpo = presets.load(overrides.parse(extra)).algorithm.name == "grpo"
    return {f"seed {seed}": [f"seed={seed}"] for seed in SEEDS} | CONTROLS | (IMITATION if is_grpo else {})


def _name(arm: str) -> str:
    return re.sub("[^a-z0-9]+", "-", arm)


def _row(arm: str, folder: Path) -> tuple[str, ...]:
    evaluations, cells = Run.read(folder).evaluations, [arm]
    for mode in GAINS:
        before, after = _ends(evaluations, mode)
        mean, low = gain(before, after)
        cells += [f"{_mean(before):.3f}", f"{_mean([*after[0], *after[1]]):.3f}", f"{mean:+.3f} ({low:+.3f})"]
    return (*cells, "yes" if has_learnt(evaluations) else "no", f"{repeated.seconds([folder]):.0f}")


def has_learnt(evaluations: Sequence[Line]) -> bool:
    """Whether one run is evidence of learning: by the mean of its last two rounds, on enough tasks, from a start with room."""
    before, _ = _ends(evaluations, "sampled")
    if len(before) < NUM_TASKS or not START[0] <= _mean(before) <= START[1]:
        return False
    gains = {mode: gain(*_ends(evaluations, mode)) for mode in GAINS}
    return all(mean >= GAINS[mode] and low >= BOUND for mode, (mean, low) in gains.items())


def _ends(evaluations: Sequence[Line], mode: str) -> tuple[Sequence[float], Sequence[Sequence[float]]]:
    """Outcomes by task before round 1, and after each of the last two rounds."""
    outcomes = [line["outcomes"][f"{mode}/success"] for line in evaluations]
    return outcomes[0], outcomes[-2:]


def _yardsticks(extra: list[str]) -> list[tuple[str, str]]:
    config = presets.load(overrides.parse(extra))
    return [("random admissible action", interval(random_policy(config))), ("oracle", interval(oracle(config)))]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


if __name__ == "__main__":
    main()
