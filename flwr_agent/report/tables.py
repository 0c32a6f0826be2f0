"""The tables of a report: a header and rows of text each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from flwr_agent.config import resolve
from flwr_agent.report import series
from flwr_agent.report.runs import Pool, Run
from flwr_agent.report.statistics import difference, gain, wilson

Table = tuple[Sequence[str], list[list[str]]]
MODES = ("sampled", "greedy")
ENOUGH_SEEDS, ENOUGH_TASKS = 5, 500
"""What a comparison of experiments needs before it says more than `no conclusion`."""


def overview(pools: Sequence[Pool]) -> Table:
    """One row for each run and decoding mode: before, at the end, and what was gained."""
    header = (
        "run",
        "seed",
        "rounds",
        "decoding",
        "tasks",
        "round 0",
        "last",
        "mean of last",
        "95 %",
        "gain",
        "95 % low",
    )
    rows = [row for pool in pools for run in pool.runs for mode in MODES for row in _scores(run, mode)]
    return header, rows


def _scores(run: Run, mode: str) -> list[list[str]]:
    name = f"{mode}/success"
    scored = series.outcomes(run, name)
    if not scored:
        return []
    first, last = min(scored), max(scored)
    cells = [
        run.name,
        str(run.seed),
        str(last),
        mode,
        str(len(scored[first])),
        _rate(scored[first]),
        _rate(scored[last]),
    ]
    if (final := series.last_mean(run, name)) is None:
        return [[*cells, "–", "–", "–", "–"]]
    mean, low, high, count = final
    after = [scored[r] for r in sorted(scored)[-count:]]
    gained, at_least = gain(scored[first], after, draws=2000) if first == 0 else (float("nan"), float("nan"))
    return [[*cells, f"{mean:.3f} ({count})", f"{low:.3f} to {high:.3f}", _signed(gained), _signed(at_least)]]


def seeds(pools: Sequence[Pool]) -> Table:
    """Experiments of several seeds: the mean over seeds of the mean of the last evaluations, and its spread."""
    rows: list[list[str]] = []
    for pool in pools:
        for mode in MODES:
            finals = [final[0] for run in pool.runs if (final := series.last_mean(run, f"{mode}/success"))]
            if len(finals) > 1:
                spread = f"{min(finals):.3f} to {max(finals):.3f}"
                rows.append(
                    [
                        pool.label,
                        str(len(finals)),
                        mode,
                        f"{np.mean(finals):.3f}",
                        f"{np.std(finals, ddof=1):.3f}",
                        spread,
                    ]
                )
    return ("experiment", "seeds", "decoding", "mean of last", "std over seeds", "lowest to highest"), rows


def comparisons(pools: Sequence[Pool]) -> Table:
    """Every two experiments, seed by seed on the same tasks, with a hierarchical bootstrap and what follows from it."""
    rows: list[list[str]] = []
    for mode in MODES:
        for first, second in combinations(pools, 2):
            found = series.differences(second, first, f"{mode}/success")
            if found is not None and len(found) > 1:
                mean, low, high = difference(found)
                seen = [str(len(found)), str(found.shape[1]), f"{mean:+.3f}", f"{low:+.3f} to {high:+.3f}"]
                rows.append([second.label, first.label, mode, *seen, verdict(low, high, *found.shape)])
    return ("experiment", "minus", "decoding", "seeds", "tasks", "difference", "95 %", "verdict"), rows


def verdict(low: float, high: float, num_seeds: int, num_tasks: int) -> str:
    """What an interval of a difference lets one say.

    Example:
        >>> verdict(0.01, 0.2, 5, 500), verdict(0.01, 0.2, 2, 500), verdict(-0.1, 0.2, 5, 500)
        ('higher', 'no conclusion: fewer than 5 seeds or 500 tasks', 'no conclusion')
    """
    if num_seeds < ENOUGH_SEEDS or num_tasks < ENOUGH_TASKS:
        return f"no conclusion: fewer than {ENOUGH_SEEDS} seeds or {ENOUGH_TASKS} tasks"
    if low <= 0 <= high:
        return "no conclusion"
    return "higher" if low > 0 else "lower"


def settings(pools: Sequence[Pool]) -> Table:
    """Keys that differ from the defaults in any experiment."""
    defaults = resolve().flat()
    configs = [pool.runs[0].config for pool in pools]
    keys = dict.fromkeys(key for config in configs for key in config)
    apart = [k for k in keys if k != "output_dir" and any(config.get(k) != defaults.get(k) for config in configs)]
    rows = [[key, str(defaults.get(key, "")), *(str(config.get(key, "")) for config in configs)] for key in apart]
    return ("key", "default", *(pool.label for pool in pools)), rows


def types(run: Run, mode: str) -> Table | None:
    """Success by task type, first and last pass; the types partition a pass, so that their sum is the row All."""
    found = series.by_type(run, f"{mode}/success")
    if not found:
        return None
    rounds = sorted({r for _, solved in found.values() for r in solved})
    rows = [[kind, str(count), *(_share(solved[r], count) for r in rounds)] for kind, (count, solved) in found.items()]
    total = sum(count for count, _ in found.values())
    sums = [sum(solved[r] for _, solved in found.values()) for r in rounds]
    header = ("task type", "tasks", *(f"round {r}" for r in rounds))
    return header, [*rows, ["All", str(total), *(_share(solved, total) for solved in sums)]]


def accounting(runs: Sequence[Run]) -> Table:
    """What the clients did in all rounds together."""
    names = {
        "episodes": "episodes",
        "env_steps": "environment steps",
        "rows": "training rows",
        "rows_dropped": "rows without signal",
        "prompt_tokens": "prompt tokens",
        "response_tokens": "tokens generated",
        "tokens_trained": "tokens trained on",
        "updates": "optimizer steps",
    }
    rows: list[list[str]] = []
    for run in runs:
        totals = [run.totals(line) for line in run.accepted]
        sums = [sum(total[name] for total in totals) for name in names]
        rows.append([run.name, str(len(totals)), *(f"{value:,.0f}" for value in sums)])
    return ("run", "client-rounds", *names.values()), rows


def failures(runs: Sequence[Run]) -> Table:
    """What went wrong, by cause; empty if nothing did."""
    rows = [
        [run.name, what, cause, str(count)]
        for run in runs
        for (what, cause), count in series.failures(run).most_common()
    ]
    rows += [
        [run.name, "run", f"resumed after round {line['round']}", "1"] for run in runs for line in run.of("resume")
    ]
    return ("run", "what", "cause", "times"), rows


def episodes(run: Run) -> list[Mapping[str, Any]]:
    """Kept episodes of the last evaluation that kept any, best first."""
    kept = [line["episodes"] for line in run.evaluations if line.get("episodes")]
    return list(kept[-1]) if kept else []


def _rate(values: Sequence[float]) -> str:
    return f"{sum(values) / len(values):.3f}"


def _share(solved: int, count: int) -> str:
    low, high = wilson(solved, count)
    return f"{solved}/{count} = {solved / count:.3f} ({low:.2f} to {high:.2f})"


def _signed(value: float) -> str:
    return f"{value:+.3f}" if np.isfinite(value) else "–"
