"""`python -m flwr_agent check`: does an environment keep the contract?"""

from __future__ import annotations

from typing import Annotated

import typer

from flwr_agent.cli.worlds import Named
from flwr_agent.errors import ConfigError


def check(
    env: Annotated[str, typer.Argument(help="Name, entry point or module:Class.")],
    settings: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Settings of the environment.")
    ] = None,
    *,
    episodes: Annotated[int, typer.Option(min=1, help="Tasks of each split to play.")] = 8,
    max_steps: Annotated[int, typer.Option(min=1, help="Actions an episode may take.")] = 50,
    splits: Annotated[str, typer.Option(help="Splits to play, with commas.")] = "train,val",
) -> None:
    """Play an environment and print every clause of the contract that it breaks, one a line; exit code 1 if any."""
    from envs import check as contract
    from envs.named import blamed

    played = [split.strip() for split in splits.split(",")]
    if not all(played):
        raise ConfigError("--splits", splits, "give names of splits with a comma between two, such as train,val")
    adapter = Named.of(env, settings or []).to_adapter()
    with blamed("env.name", env, "cannot be checked"):
        problems = contract.check(adapter, episodes=episodes, max_steps=max_steps, splits=played)
    for problem in problems:
        typer.echo(problem)
    if problems:
        raise typer.Exit(1)
    counts = (f"{min(episodes, len(adapter.tasks(split)))} tasks of {split}" for split in played)
    typer.echo(f"{env} keeps the contract on {', '.join(counts)}")
