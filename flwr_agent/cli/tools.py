"""`evaluate`, `compare` and `rebuild-summary`: looking at what a run has left."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, cast

import typer
from rich.console import Console
from rich.table import Table

from flwr_agent import presets
from flwr_agent.cli import overrides
from flwr_agent.cli.options import file_to_write, finite
from flwr_agent.cli.parts import Parts
from flwr_agent.config import resolve
from flwr_agent.report.statistics import wilson
from flwr_agent.requests import EvaluateReply, EvaluateRequest

Cells = tuple[str, ...]


def evaluate(
    context: typer.Context,
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Run folder.")],
    settings: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Overrides, such as evaluation.tasks=500.")
    ] = None,
    *,
    round_: Annotated[
        int | None, typer.Option("--round", min=0, help="A round whose model was kept; the last.")
    ] = None,
    json_: Annotated[
        Path | None,
        typer.Option("--json", callback=file_to_write, help="Write outcome, id and type of each task there."),
    ] = None,
) -> None:
    """Play the held-out tasks with a checkpoint of a run and show success by task type."""
    config = resolve(presets.of_run(run), overrides.parse(settings or []))
    number, arrays, base = cast(Parts, context.obj).load_model(run, round_)
    from flwr_agent.rl.learner import Learner
    from flwr_agent.rl.model import on_base

    config = on_base(config, base)
    request = EvaluateRequest(experiment="evaluate", round=number, config=config, arrays=arrays)
    reply = Learner(config).evaluate(request)
    table = Table("task type", "tasks", *modes(reply), title=f"round {number}: success (95 %)", title_justify="left")
    for row in by_type(reply):
        table.add_row(*row)
    Console().print(table)
    if json_ is not None:
        facts = {"round": number, "tasks": reply.tasks, "types": reply.types, "outcomes": reply.outcomes}
        json_.parent.mkdir(parents=True, exist_ok=True)
        json_.write_text(json.dumps(facts), encoding="utf-8")


def compare(
    first: Annotated[Path, typer.Argument(metavar="A", help="safetensors file, checkpoint, model or run folder.")],
    second: Annotated[Path, typer.Argument(metavar="B", help="The other.")],
    *,
    tolerance: Annotated[
        float, typer.Option(min=0, callback=finite, help="Largest relative distance of a tensor that passes.")
    ] = 0.0,
) -> None:
    """Compare two models tensor by tensor; exit code 1 if one tensor is further apart than the tolerance."""
    from flwr_agent.compare import compare as differences

    found = differences(first, second)
    apart = [difference for difference in found if not difference.is_within(tolerance)]
    table = Table("tensor", "relative", "max |Δ|", "")
    for one in sorted(apart, key=lambda d: -d.relative):
        table.add_row(one.name, f"{one.relative:.3g}", f"{one.largest:.3g}", one.problem)
    console = Console()
    if apart:
        console.print(table)
    worst = max((d.relative for d in found), default=0.0)
    console.print(
        f"{len(found)} tensors, {len(apart)} further apart than {tolerance:g}; largest relative distance {worst:.3g}, "
        f"max |Δ| {max((d.largest for d in found), default=0.0):.3g}",
        highlight=False,
        soft_wrap=True,
    )
    raise typer.Exit(1 if apart else 0)


def rebuild_summary(
    context: typer.Context, run: Annotated[Path, typer.Argument(metavar="RUN", help="Run folder.")]
) -> None:
    """Make federated_summary.json, the clients' metrics.json and report.html again, from the ledger alone."""
    for path in cast(Parts, context.obj).rebuild(run):
        typer.echo(path)


def modes(reply: EvaluateReply) -> list[str]:
    """How the tasks were decoded: `sampled`, and `greedy` if that was asked for."""
    return [name.partition("/")[0] for name in reply.outcomes if name.endswith("/success")]


def by_type(reply: EvaluateReply) -> list[Cells]:
    """A row for each task type and one for all tasks, which the types add up to."""
    solved = [reply.outcomes[f"{mode}/success"] for mode in modes(reply)]
    rows = [(kind, [i for i, own in enumerate(reply.types) if own == kind]) for kind in sorted(set(reply.types))]
    rows.append(("All", list(range(len(reply.tasks)))))
    return [(kind, str(len(at)), *(_rate([values[i] for i in at]) for values in solved)) for kind, at in rows]


def _rate(values: Sequence[float]) -> str:
    low, high = wilson(sum(values), len(values))
    return f"{sum(values):.0f}/{len(values)} = {sum(values) / max(1, len(values)):.3f} ({low:.3f} to {high:.3f})"
