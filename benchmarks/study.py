"""Does it hurt more when clients' tasks differ, or when their worlds do? `python -m benchmarks.study`.

Six arms on the embedded WebShop from the same policy, several seeds each, through `python -m flwr_agent run`. What is done is
not repeated, so that the command can be interrupted and given again; `--plan` says how much is left. The page it writes says
what was measured, `no conclusion` included.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from pathlib import Path

from benchmarks import repeated
from flwr_agent.cli.progress import to_duration
from flwr_agent.report import figures, tables
from flwr_agent.report.runs import Pool, Run
from flwr_agent.report.write import write_pools

SEEDS = (42, 21, 84, 63, 105)
CLIENTS = 8
COMMON = (
    f"federation.total_clients={CLIENTS}",
    "federation.clients_per_round=2",
    "federation.rounds=6",
    "federation.epochs_per_round=5",
    "partition.tasks_per_client=356",
    "env.search_return_n=200",
    "evaluation.tasks=512",
    "evaluation.every=5",
)
"""Rounds 0, 5 and 6 are scored: the mean of the last two, and where all arms begin. 356 of the 2,850 training goals are what
eight clients have each when no one shares."""
ARMS = {
    "uniform": (),
    "preference": ("partition.strategy=preference", "partition.omega=0.99"),
    "lookalike": ("partition.strategy=lookalike", "partition.variant_n=4"),
    "local": ("federation.mode=local",),
    "centralized-steps": ("federation.mode=centralized", "federation.budget=steps"),
    "centralized-samples": ("federation.mode=centralized", "federation.budget=samples"),
}
"""Arm -> what sets it apart; `local` trains another client with each seed."""
QUESTIONS = (
    ("preference", "uniform", "tasks that differ between clients"),
    ("lookalike", "uniform", "worlds that differ between clients"),
    ("lookalike", "preference", "worlds that differ instead of tasks"),
    ("uniform", "local", "federation instead of one client alone"),
    ("uniform", "centralized-steps", "federation instead of all tasks in one place, as many steps"),
    ("uniform", "centralized-samples", "federation instead of all tasks in one place, as many samples"),
)
"""(arm, arm it is compared with, what the difference is the effect of)."""


def main() -> None:
    """Run what is missing and write the page."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("settings", nargs="*", metavar="KEY=VALUE", help="laid over every arm")
    asked.add_argument("--runs", type=Path, default=Path("runs/study"), help="folder of the runs")
    asked.add_argument("--out", type=Path, default=Path("docs/results"), help="folder of the page")
    asked.add_argument("--seeds", type=int, default=len(SEEDS), choices=range(1, len(SEEDS) + 1))
    asked.add_argument("--jobs", type=int, default=1, help="runs side by side, two cores each")
    asked.add_argument("--plan", action="store_true", help="say what is left and how long it takes, run nothing")
    options = asked.parse_intermixed_args()
    runs = to_runs(options.runs.absolute(), options.seeds, options.settings)
    print(plan(runs, options.jobs), flush=True)  # noqa: T201
    if options.plan:
        return
    options.out.mkdir(parents=True, exist_ok=True)
    repeated.finish(runs, options.jobs)
    found = _by_arm(list(runs))
    write_pools(found, options.runs)
    draw(found, options.out)
    command = shlex.join(["python", "-m", "benchmarks.study", *options.settings])
    (options.out / "asymmetry.md").write_text(to_page(found, command, list(runs)), encoding="utf-8")


def to_runs(folder: Path, num_seeds: int, extra: Sequence[str]) -> repeated.Runs:
    """Seed by seed, so that an interrupted study has whole seeds."""
    runs: dict[Path, Sequence[str]] = {}
    for number, seed in enumerate(SEEDS[:num_seeds]):
        for arm, settings in ARMS.items():
            own = [f"federation.local_client={number % CLIENTS}"] if arm == "local" else []
            runs[folder / f"{arm}-seed{seed}"] = [*COMMON, f"seed={seed}", *settings, *own, *extra]
    return runs


def plan(runs: repeated.Runs, jobs: int) -> str:
    """How much is done, and how long the rest takes at the pace so far."""
    done = [folder for folder in runs if repeated.is_done(folder)]
    num_left = len(runs) - len(done)
    said = f"{len(done)} runs done, {num_left} left"
    if not done or not num_left:
        return said
    mean_s = repeated.seconds(done) / len(done)
    return f"{said}, {mean_s:.0f} s each so far: {to_duration(mean_s * num_left / jobs)}"


def _by_arm(folders: Sequence[Path]) -> list[Pool]:
    """The runs of each arm, whatever client `local` trained."""
    runs = {folder.name: Run.read(folder) for folder in folders}
    return [Pool(label=arm, runs=[run for name, run in runs.items() if name.startswith(f"{arm}-seed")]) for arm in ARMS]


def draw(found: Sequence[Pool], out: Path) -> None:
    """Success over environment steps, one figure for each decoding mode."""
    drawn = {one.key: one for one in figures.curves(found, "env_steps")}
    for mode, name in (("sampled", "asymmetry.png"), ("greedy", "asymmetry-greedy.png")):
        drawn[f"{mode}-success-env_steps"].canvas().savefig(out / name, dpi=200)


def to_page(found: Sequence[Pool], command: str, folders: Sequence[Path]) -> str:
    """The page in Markdown."""
    by_arm = {pool.label: pool for pool in found}
    any_run = found[0].runs[0]
    num_tasks, num_seeds = len(any_run.evaluations[0]["outcomes"]["sampled/success"]), len(found[0].runs)
    return PAGE.format(
        command=command,
        num_seeds=num_seeds,
        num_tasks=num_tasks,
        common=" ".join(COMMON),
        arms="\n".join(
            f"- `{arm}`: {'`' + ' '.join(keys) + '`' if keys else 'the above'}" for arm, keys in ARMS.items()
        ),
        scores=_markdown(_scores(by_arm)),
        effects=_markdown(_effects(by_arm)),
        duration=to_duration(repeated.seconds(folders)),
        machine=repeated.machines(folders),
    )


PAGE = """# Differing tasks or differing worlds: what hurts?

```sh
{command}
```

{num_seeds} seeds, {num_tasks} held-out tasks in the standard world, sampled at T = 0.4 and greedy; each figure is the mean of the
last two scored rounds, never the best one. All arms start from the same policy. Common to all: `{common}`.
Added up, the runs took {duration} ({machine}), side by side with others; `--jobs N` runs N at once.

{arms}

![success over environment steps](asymmetry.png)
![the same, greedy](asymmetry-greedy.png)

All curves, costs and tables are in `report.html` in the folder of the runs.

## Success

{scores}

## Differences

By seed and task, with a 95 % interval of a hierarchical bootstrap over seeds and tasks. An interval that holds 0, fewer than
five seeds or fewer than 500 tasks are no conclusion. Of many such intervals one in twenty misses by chance alone.

{effects}
"""


def _scores(by_arm: dict[str, Pool]) -> tables.Table:
    return tables.seeds(list(by_arm.values()))


def _effects(by_arm: dict[str, Pool]) -> tables.Table:
    """The pre-stated questions, each with its difference."""
    asked = {(second, first): effect for second, first, effect in QUESTIONS}
    rows: list[list[str]] = []
    for (second, first), effect in asked.items():
        _, found = tables.comparisons([by_arm[first], by_arm[second]])
        rows += [[effect, f"{second} - {first}", *row[2:]] for row in found]
    return ("effect of", "arms", "decoding", "seeds", "tasks", "difference", "95 %", "verdict"), rows


def _markdown(table: tables.Table) -> str:
    header, rows = table
    return "\n".join(f"| {' | '.join(row)} |" for row in [header, ["---"] * len(header), *rows])


if __name__ == "__main__":
    main()
