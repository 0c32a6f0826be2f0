"""`python -m flwr_agent play`: a person, or the policy of a run, plays one episode in the terminal."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, cast

import typer
from rich.console import Console
from rich.panel import Panel
from rich.text import Text

from envs.base import EnvAdapter, Step, Task
from envs.named import blamed
from flwr_agent import presets, settings
from flwr_agent.cli.options import finite
from flwr_agent.cli.parts import Parts
from flwr_agent.cli.worlds import STYLE, Named
from flwr_agent.config import KEYS, RunConfig, resolve
from flwr_agent.errors import ConfigError
from flwr_agent.seeds import seed_for
from flwr_agent.world import to_adapter

MAX_SHOWN = 40
"""Admissible actions listed at once."""


def play(  # noqa: PLR0913 (one parameter per option)
    context: typer.Context,
    env: Annotated[str, typer.Argument(help="Name, entry point or module:Class.")],
    settings: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Settings of the environment.")
    ] = None,
    *,
    split: Annotated[str, typer.Option(help="Split of the task.")] = "val",
    task: Annotated[str, typer.Option(help="Task id, or its number in the split.")] = "0",
    model: Annotated[Path | None, typer.Option(help="Run folder whose policy plays.")] = None,
    temperature: Annotated[
        float, typer.Option(min=0.0, callback=finite, help="The policy's sampling temperature; 0 is greedy.")
    ] = 0.0,
) -> None:
    """Play one episode by typing actions (end with Ctrl-D), or watch the policy of a run play it."""
    console, named = Console(), Named.of(env, settings or [])
    if model is None:
        adapter = named.to_adapter()
        asyncio.run(_by_hand(adapter, _chosen(adapter, split, task), console))
        return
    config, parts = _config(model, named), cast(Parts, context.obj)
    round_, arrays, base = parts.load_model(model, None)
    adapter = to_adapter(config)
    chosen = _chosen(adapter, split, task)
    from flwr_agent.rl.model import on_base
    from flwr_agent.rl.show import show

    steps, answers = show(on_base(config, base), arrays, adapter, chosen, temperature=temperature)
    console.print(f"policy of round {round_} of {model}", markup=False)
    _show(console, steps[0])
    for answer, step in zip(answers, steps[1:], strict=True):
        console.print(f"> {answer}", style="bold", markup=False)
        _show(console, step)
    _end(console, steps)


async def _by_hand(adapter: EnvAdapter, task: Task, console: Console) -> None:
    with blamed("env.name", adapter.name, f"cannot begin task {task.id}"):
        env = adapter.make()
        steps = [await env.reset(task, seed=seed_for("world", task.id))]
    _show(console, steps[0])
    while not steps[-1].done:
        try:
            action = console.input("[bold]> [/]")
        except EOFError:
            console.print()
            break
        with blamed("env.name", adapter.name, "cannot play this action"):
            steps.append(await env.step(action))
        _show(console, steps[-1])
    with blamed("env.name", adapter.name, "cannot close its episode"):
        await env.close()
    _end(console, steps)


def _show(console: Console, step: Step) -> None:
    if instruction := step.info.get("instruction"):
        console.print(Panel(Text(str(instruction)), title="task"))
    console.print(step.text, markup=False, highlight=False)
    if step.admissible and not step.done:
        more = len(step.admissible) - MAX_SHOWN
        shown = " | ".join(step.admissible[:MAX_SHOWN]) + (f" | … {more} more" if more > 0 else "")
        console.print(shown, style="dim", markup=False, highlight=False)


def _end(console: Console, steps: Sequence[Step]) -> None:
    verdict = "success" if steps[-1].info.get("success") else "no success"
    total = sum(step.reward for step in steps)
    end = "" if steps[-1].done else ", not played to the end"
    console.print(f"{verdict}, reward {total:g} after {len(steps) - 1} actions{end}")


def _chosen(adapter: EnvAdapter, split: str, task: str) -> Task:
    with blamed("env.name", adapter.name, f"tasks({split!r}) fails"):
        tasks = adapter.tasks(split)
        by_name = {one.id: one for one in tasks} | {str(number): one for number, one in enumerate(tasks)}
    if task not in by_name:
        fix = f"{adapter.name} has {len(tasks)} tasks in {split!r}; give a number below that, or an id"
        raise ConfigError("--task", task, fix)
    return by_name[task]


def _config(run: Path, named: Named) -> RunConfig:
    """The run's own configuration, in the named environment."""
    flat = presets.of_run(run)
    if flat["env.name"] != named.name:
        flat = {key: value for key, value in flat.items() if not key.startswith("env.")}
    given = {f"env.{key}": value for key, value in {"name": named.name, **named.settings}.items()}
    own = {key if key in KEYS else key.replace("env.", "env.settings.", 1): value for key, value in given.items()}
    below = settings.expanded(flat, json.loads)
    return resolve(settings.laid(below, {**own, STYLE: named.style}))
