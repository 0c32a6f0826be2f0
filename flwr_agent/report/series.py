"""Numbers of a run by round, ready to be drawn or tabulated; nothing here knows matplotlib or HTML."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from flwr_agent.report.runs import Pool, Run
from flwr_agent.report.statistics import wilson

LAST = 10
"""Evaluations that the final mean is taken over, or as many as there are after round 0."""
STAGES = ("place", "send", "receive_and_fold", "digest", "checkpoint", "evaluate")


@dataclass(frozen=True, kw_only=True, slots=True)
class Series:
    """A line with a band."""

    rounds: Sequence[int]
    values: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]


def outcomes(run: Run, name: str) -> dict[int, list[float]]:
    """Round -> outcome of each held-out task, where that was scored; `name` is such as `sampled/success`."""
    return {line["round"]: line["outcomes"][name] for line in run.evaluations if name in line["outcomes"]}


def held_out(pool: Pool, name: str) -> Series | None:
    """Mean outcome by round: with a 95 % band over tasks for one run, from the lowest to the highest of several seeds.

    The band of a success rate is Wilson's; that of a score is its mean plus and minus 1.96 standard errors.
    """
    scored = [outcomes(run, name) for run in pool.runs]
    rounds = sorted(set.intersection(*map(set, scored)))
    if not rounds:
        return None
    means = np.array([[np.mean(by_round[r]) for r in rounds] for by_round in scored])
    if len(pool.runs) > 1:
        low, high = means.min(axis=0).tolist(), means.max(axis=0).tolist()
    else:
        bands = [_band(scored[0][r], is_rate=name.endswith("/success")) for r in rounds]
        low, high = [low for low, _ in bands], [high for _, high in bands]
    return Series(rounds=rounds, values=means.mean(axis=0).tolist(), low=low, high=high)


def _band(values: Sequence[float], *, is_rate: bool) -> tuple[float, float]:
    if is_rate:
        return wilson(sum(values), len(values))
    half = 1.96 * float(np.std(values, ddof=1)) / len(values) ** 0.5 if len(values) > 1 else 0.0
    return float(np.mean(values)) - half, float(np.mean(values)) + half


def last_mean(run: Run, name: str) -> tuple[float, float, float, int] | None:
    """Mean over the last `LAST` evaluations after round 0, its 95 % interval over tasks, and how many were taken.

    An evaluation plays the same tasks again, so that the interval is that of one evaluation of them.
    """
    per_task = last_outcomes(run, name)
    if per_task is None:
        return None
    low, high = _band(per_task.tolist(), is_rate=name.endswith("/success"))
    return float(per_task.mean()), low, high, min(LAST, sum(round_ > 0 for round_ in outcomes(run, name)))


def last_outcomes(run: Run, name: str) -> np.ndarray | None:
    """`[N]` outcome of each task as a mean over the last `LAST` evaluations after round 0."""
    by_round = outcomes(run, name)
    trained = [by_round[r] for r in sorted(by_round) if r > 0][-LAST:]
    return np.mean(trained, axis=0) if trained else None


def differences(pool: Pool, other: Pool, name: str) -> np.ndarray | None:
    """`[S, N]` last outcomes of `pool` minus those of `other`, by seed that both have and task; None without any.

    Seeds whose runs have not played equally many tasks are left out.
    """
    ours, theirs = ({run.seed: last_outcomes(run, name) for run in one.runs} for one in (pool, other))
    rows = [
        a - b
        for seed in sorted(ours.keys() & theirs.keys())
        if (a := ours[seed]) is not None and (b := theirs[seed]) is not None and a.shape == b.shape
    ]
    return np.array([row for row in rows if row.shape == rows[0].shape]) if rows else None


def clients(run: Run, metric: str) -> dict[int, dict[int, float]]:
    """Round -> client -> what it measured, of clients whose update counts."""
    found: dict[int, dict[int, float]] = defaultdict(dict)
    for line in run.accepted:
        if line["metrics"].get(metric) is not None:
            found[line["round"]][line["client_id"]] = line["metrics"][metric]
    return dict(found)


def client_mean(pool: Pool, metric: str) -> Series | None:
    """Mean of a metric over clients and runs by round, from the lowest to the highest client."""
    by_run = [clients(run, metric) for run in pool.runs]
    rounds = sorted(set.intersection(*map(set, by_run)))
    if not rounds:
        return None
    values = [[value for by_round in by_run for value in by_round[r].values()] for r in rounds]
    return Series(
        rounds=rounds,
        values=[float(np.mean(v)) for v in values],
        low=list(map(min, values)),
        high=list(map(max, values)),
    )


def worst_client(pool: Pool, metric: str) -> tuple[list[int], list[float]]:
    """Rounds, and the lowest client's value in each, as a mean over runs."""
    by_run = [clients(run, metric) for run in pool.runs]
    rounds = sorted(set.intersection(*map(set, by_run)))
    return rounds, [float(np.mean([min(by_round[r].values()) for by_round in by_run])) for r in rounds]


def round_metric(pool: Pool, metric: str) -> Series | None:
    """A metric of the round lines, from the lowest to the highest run."""
    by_run = [
        {line["round"]: line["metrics"][metric] for line in run.of("round") if line["metrics"].get(metric) is not None}
        for run in pool.runs
    ]
    rounds = sorted(set.intersection(*map(set, by_run)))
    if not rounds:
        return None
    values = [[by_round[r] for by_round in by_run] for r in rounds]
    return Series(
        rounds=rounds,
        values=[float(np.mean(v)) for v in values],
        low=list(map(min, values)),
        high=list(map(max, values)),
    )


def server_seconds(run: Run) -> dict[str, float]:
    """Stage -> mean seconds of a round; stages follow one another, so that they add up."""
    sums: Counter[str] = Counter()
    for line in run.of("round"):
        sums.update(line["seconds"])
    for kind, stage in (("checkpoint", "checkpoint"), ("evaluation", "evaluate")):
        sums[stage] += sum(line["seconds"] for line in run.of(kind) if line["round"] > 0)
    num_rounds = max(1, len(run.of("round")))
    order = [*STAGES, *sorted(set(sums) - set(STAGES))]
    return {stage: sums[stage] / num_rounds for stage in order if stage in sums}


def client_seconds(run: Run) -> dict[str, float]:
    """Stage -> mean seconds of a client-round."""
    sums: Counter[str] = Counter()
    for line in run.accepted:
        sums.update({key.removeprefix("time/"): v for key, v in line["metrics"].items() if key.startswith("time/")})
    return {stage: total / max(1, len(run.accepted)) for stage, total in sums.items()}


def payload(run: Run) -> dict[str, float]:
    """Direction -> mean bytes of arrays in a round."""
    sums: Counter[str] = Counter()
    for line in run.of("round"):
        sums.update(line["payload_bytes"])
    return {way: total / max(1, len(run.of("round"))) for way, total in sums.items()}


def by_type(run: Run, name: str) -> dict[str, tuple[int, dict[int, int]]]:
    """Task type -> (tasks, round -> tasks solved) of the first and the last pass; the types partition each pass."""
    scored = [line for line in run.evaluations if name in line["outcomes"] and line.get("types")]
    found: dict[str, tuple[int, dict[int, int]]] = {}
    for line in scored[:1] + scored[1:][-1:]:
        for kind in sorted(set(line["types"])):
            solved = [value for value, own in zip(line["outcomes"][name], line["types"], strict=True) if own == kind]
            found.setdefault(kind, (len(solved), {}))[1][line["round"]] = int(sum(solved))
    return found


def failures(run: Run) -> Counter[tuple[str, str]]:
    """(what failed, cause) -> how often; causes that differ only after the first colon count as one."""
    found = Counter(
        (f"client {line['status']}", line["reason"].partition(":")[0] or "no reason given")
        for line in run.of("client")
        if line["status"] != "accepted"
    )
    found.update(("evaluation", line["reason"].partition(":")[0]) for line in run.of("evaluation_failed"))
    if num_episodes := round(sum(run.totals(line)["env_errors"] for line in run.accepted)):
        found["episode", "the environment failed twice"] = num_episodes
    return found
