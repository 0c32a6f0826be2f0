"""`python -m flwr_agent labels`: success labels of a policy, which the partition `hardness` deals tasks by."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress

from flwr_agent.cli.options import file_to_write, finite
from flwr_agent.cli.partition import configured


def labels(
    settings: Annotated[list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Overrides.")] = None,
    *,
    out: Annotated[Path, typer.Option(callback=file_to_write, help="The trajectories file to write.")],
    preset: Annotated[str, typer.Option(help="A name in conf/, or a YAML file.")] = "",
    model: Annotated[str, typer.Option(help="The policy; the preset's own if it is not given.")] = "",
    temperature: Annotated[float, typer.Option(min=0, callback=finite, help="0 answers greedily.")] = 0.0,
    chunk: Annotated[int, typer.Option(min=1, help="Episodes at a time; an ended call goes on after the last.")] = 64,
) -> None:
    """Play the whole training pool with a policy and write which tasks it solved."""
    from flwr_agent.policy import check_policy
    from flwr_agent.rl.label import label

    config = configured(preset, [*(settings or []), *([f"model.path={model}"] if model else [])])
    check_policy(config)
    console = Console()
    with Progress(console=console) as bar:
        task = bar.add_task("labelling")

        def report(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)
            if not console.is_terminal:
                console.print(f"{done} of {total} tasks played", highlight=False)

        found = label(config, out, temperature=temperature, chunk=chunk, report=report)
    share = found["successes"] / max(1, found["total_trajectories"])
    console.print(
        f"{out}: {found['total_trajectories']} tasks labelled, {share:.1%} solved, {found['env_errors']} failed",
        highlight=False,
        soft_wrap=True,
    )
