"""`python -m flwr_agent matrix`: the published 194 cells, listed, shown, written out or run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml
from rich.console import Console

from flwr_agent import presets
from flwr_agent.cli import overrides
from flwr_agent.cli import run as running
from flwr_agent.cli.options import folder_to_write
from flwr_agent.config import RunConfig, resolve
from flwr_agent.errors import ConfigError
from flwr_agent.hosts.launched import Where
from flwr_agent.matrix import SCALES, Cell, cells, find, to_flat
from flwr_agent.matrix.recipe import LABELS, write_drawn_labels
from flwr_agent.validate import Strategy
from flwr_agent.world import to_adapter


def matrix(  # noqa: PLR0913 (its options)
    context: typer.Context,
    settings: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Overrides, for --show, --write and --run.")
    ] = None,
    *,
    list_: Annotated[bool, typer.Option("--list", help="Print the path of every cell.")] = False,
    show: Annotated[str, typer.Option(metavar="CELL", help="Print a cell as a preset.")] = "",
    write: Annotated[
        Path | None,
        typer.Option(metavar="DIR", callback=folder_to_write, help="Write every cell as a preset under DIR."),
    ] = None,
    run: Annotated[str, typer.Option(metavar="CELL", help="Run a cell.")] = "",
    scale: Annotated[str, typer.Option(help="`paper`, or `small` for about a minute on a CPU.")] = "paper",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="With --run: check it and show its cost only.")] = False,
) -> None:
    """The published experiment matrix; CELL is a path that --list prints, or a part that only one of them has."""
    if scale not in SCALES:
        raise ConfigError("--scale", scale, "no such scale", allowed=SCALES)
    given = overrides.parse(settings or [])
    _check_one(list_=list_, show=show, write=write, run=run, dry_run=dry_run, is_set=bool(given))
    if list_:
        _list(write_line=typer.echo)
    elif show:
        typer.echo(to_yaml(find(show), scale, given), nl=False)
    elif write is not None:
        typer.echo(f"{_write(write, scale, given)} presets in {write}")
    else:
        plan = to_plan(find(run), scale, given, base=Path.cwd(), load_strategy=context.obj.load_strategy)
        console = Console()
        running.show(plan, console, Where()) if dry_run else running.execute(plan, console, Where())


def _check_one(*, write: Path | None, dry_run: bool, is_set: bool, list_: bool, show: str, run: str) -> None:
    """Refuse options of which one would be passed over."""
    asked = {"--list": list_, "--show": show, "--write": write is not None, "--run": run}
    chosen = [option for option, is_asked in asked.items() if is_asked]
    if len(chosen) != 1:
        fix = "say one thing to do: --list, --show CELL, --write DIR or --run CELL"
        raise ConfigError("matrix", " ".join(chosen), fix)
    if dry_run and not run:
        raise ConfigError(chosen[0], "--dry-run", "belongs to --run CELL; leave it out")
    if is_set and list_:
        raise ConfigError("--list", "KEY=VALUE", "changes no path; leave the settings out")


def to_plan(
    cell: Cell,
    scale: str,
    given: Mapping[str, Any],
    *,
    base: Path,
    load_strategy: Callable[[RunConfig], Strategy],
) -> running.Plan:
    """A validated run of a cell.

    Raises:
        AgentError: what is wrong, in one line.
    """
    flat = to_flat(cell, scale) | dict(given)
    if scale == "small" and cell.arm.strategy == "hardness" and f"partition.{LABELS}" not in given:
        flat[f"partition.{LABELS}"] = str(_drawn_labels(flat))
    layers = presets.Layers(name=f"{cell.name}-{scale}", flat=flat, sources={})
    return running.checked(layers, base=base, load_strategy=load_strategy)


def to_yaml(cell: Cell, scale: str, given: Mapping[str, Any]) -> str:
    """A cell as a preset, every key that it sets in the order of the tree."""
    flat = to_flat(cell, scale) | dict(given)
    known = resolve(flat).flat()
    body = yaml.safe_dump({key: flat[key] for key in known if key in flat}, sort_keys=False)
    return f"# {cell.path}{'' if scale == 'paper' else f' ({scale})'}\n{body}"


def _list(write_line: Callable[[str], None]) -> None:
    for cell in cells():
        write_line(cell.path)
    counts = Counter(cell.family for cell in cells())
    write_line(f"# {len(cells())} cells: {', '.join(f'{family} {count}' for family, count in counts.items())}")


def _write(folder: Path, scale: str, given: Mapping[str, Any]) -> int:
    for cell in cells():
        path = folder / f"{cell.path}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(to_yaml(cell, scale, given), encoding="utf-8")
    return len(cells())


def _drawn_labels(flat: Mapping[str, Any]) -> Path:
    adapter = to_adapter(resolve(flat))
    path = Path.home() / ".cache" / "flwr_agent" / "labels" / f"{adapter.name}-{adapter.fingerprint()[:16]}.json"
    if not path.is_file():
        write_drawn_labels(path, list(adapter.tasks("train")))
    return path
