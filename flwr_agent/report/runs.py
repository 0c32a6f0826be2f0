"""A run as its folder tells it: the configuration it was started with and the lines of its ledger."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from flwr_agent import lines, presets
from flwr_agent.errors import ConfigError

Line = Mapping[str, Any]
AXES = {"rounds": "federated round", "env_steps": "environment steps of all clients", "tokens": "tokens generated"}
"""What a curve may be drawn over -> the label of that axis."""
_APART = ("seed", "output_dir", "fresh")
"""Keys in which repetitions of one experiment may differ."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """What one run folder holds.

    Example:
        >>> Run.read(Path("runs/default-seed42")).evaluations[-1]["metrics"]["success"]
        0.7578125
    """

    name: str
    """Of its folder."""
    config: Mapping[str, Any]
    """Dotted key -> value."""
    lines: Sequence[Line]
    """The ledger, oldest first."""

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read a run folder; the run may still be going on.

        Raises:
            DataError: the folder is not one of a run, or a file in it is damaged.
        """
        config = presets.of_run(folder)
        return cls(name=folder.resolve().name, config=config, lines=lines.read(folder / lines.FILE))

    def of(self, kind: str) -> list[Line]:
        """The lines of one kind."""
        return [line for line in self.lines if line["kind"] == kind]

    @property
    def evaluations(self) -> list[Line]:
        """Scored evaluations by ascending round."""
        return sorted(self.of("evaluation"), key=lambda line: line["round"])

    @property
    def accepted(self) -> list[Line]:
        """Client lines whose update is in a model."""
        return [line for line in self.of("client") if line["status"] == "accepted"]

    @property
    def seed(self) -> int:
        """Base seed."""
        return self.config.get("seed", 0)

    def num_episodes(self) -> int:
        """Training episodes of one client-round."""
        keys = ("federation.epochs_per_round", "trainer.tasks_per_step", "algorithm.group_size")
        epochs, tasks, size = (int(self.config[key]) for key in keys)
        return epochs * tasks * size

    def positions(self, axis: str) -> dict[int, float]:
        """Round -> place on an axis of `AXES`; what clients do in a round counts from its end on."""
        last = max((line["round"] for line in self.lines if "round" in line), default=0)
        if axis == "rounds":
            return {number: float(number) for number in range(last + 1)}
        spent = dict.fromkeys(range(last + 1), 0.0)
        for line in self.accepted:
            spent[line["round"]] += self.totals(line)[axis]
        total = 0.0
        return {number: (total := total + spent[number]) for number in sorted(spent)}

    def totals(self, line: Line) -> dict[str, float]:
        """What a client did in one round, from the means of its steps that its line holds."""
        metrics, epochs = line["metrics"], int(self.config["federation.epochs_per_round"])
        summed = ("prompt_tokens", "response_tokens", "tokens_trained", "rows", "rows_dropped", "updates", "env_errors")
        totals = {name: metrics.get(name, 0.0) * epochs for name in summed}
        return totals | {
            "episodes": float(self.num_episodes()),
            "env_steps": metrics.get("turns", 0.0) * self.num_episodes(),
            "tokens": totals["response_tokens"],
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class Pool:
    """Runs of one experiment that differ only in their seed."""

    label: str
    runs: Sequence[Run]

    @property
    def rounds(self) -> list[int]:
        """Rounds that every run has scored."""
        scored = [{line["round"] for line in run.evaluations} for run in self.runs]
        return sorted(set.intersection(*scored))

    def check_seeds(self) -> None:
        """Refuse to count one seed twice.

        Raises:
            ConfigError: two runs have the same one; named.
        """
        first: dict[int, Run] = {}
        for run in self.runs:
            if (other := first.setdefault(run.seed, run)) is not run:
                fix = f"has the configuration and the seed {run.seed} of {other.name}; give one of the two"
                raise ConfigError("RUN", run.name, fix)


def pools(runs: Sequence[Run]) -> list[Pool]:
    """The experiments among runs, in order of first appearance, each labelled by what sets it apart from the others."""
    grouped: dict[str, list[Run]] = {}
    for run in runs:
        same = {key: value for key, value in run.config.items() if key not in _APART}
        grouped.setdefault(json.dumps(same, sort_keys=True), []).append(run)
    groups = list(grouped.values())
    labels = [_label(group, groups) for group in groups]
    if len(set(labels)) < len(labels):
        labels = [f"{group[0].name}: {label}" for group, label in zip(groups, labels, strict=True)]
    return [Pool(label=label, runs=group) for label, group in zip(labels, groups, strict=True)]


def _label(group: Sequence[Run], groups: Sequence[Sequence[Run]]) -> str:
    stem = _stem(group)
    if not stem or sum(stem in (_stem(other), *(run.name for run in other)) for other in groups) > 1:
        stem = _apart(group, groups) or group[0].name
    return stem if len(group) == 1 else f"{stem} ({len(group)} seeds)"


def _stem(group: Sequence[Run]) -> str:
    """The name of the runs without their seed, if they share one."""
    stems = {re.sub(r"-seed\d+$", "", run.name) for run in group}
    return stems.pop() if len(stems) == 1 else ""


def _apart(group: Sequence[Run], groups: Sequence[Sequence[Run]]) -> str:
    configs, own = [one[0].config for one in groups], group[0].config
    differing = [key for key in own if key not in _APART and len({str(config.get(key)) for config in configs}) > 1]
    return ", ".join(f"{key.rpartition('.')[2]}={own[key]}" for key in differing)
