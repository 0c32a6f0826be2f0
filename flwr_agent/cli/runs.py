"""`python -m flwr_agent status`, `stop` and `resume`: a run that was started before, by its folder."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from flwr_agent import presets
from flwr_agent.accountant import epsilon
from flwr_agent.cli import overrides
from flwr_agent.cli.progress import LEDGER, Progress
from flwr_agent.config import resolve
from flwr_agent.errors import ConfigError, ResumeError
from flwr_agent.hosts.launched import FILE, LOGS, SUPERLINK, Launch
from flwr_agent.hosts.superlink import FORGOTTEN, LaunchError, reached

STOP_S = 60.0
"""Seconds a run of this machine has to end everything it started."""
POLL_S = 0.1
RUNNING, DONE, INTERRUPTED = "running", "finished:completed", "interrupted"

Folder = Annotated[Path, typer.Argument(help="Run folder.", exists=True, file_okay=False, resolve_path=True)]


def status(folder: Folder, *, json_: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False) -> None:
    """Say how a run goes: state, round, who has answered, failures, scores, and where its logs are."""
    facts = _facts(folder)
    if json_:
        typer.echo(json.dumps(facts, indent=1))
        return
    typer.echo(f"{folder}: {facts['state']}")
    typer.echo(f"round {facts['round']} of {facts['rounds'] or '?'} done; answered since: {_listed(facts['clients'])}")
    for failure in facts["failures"]:
        typer.echo(failure)
    if facts["success"] is not None:
        typer.echo(f"held-out success {facts['success']:.3f} after round {facts['evaluated']}")
    if facts["state"] == INTERRUPTED:
        typer.echo(f"go on with: flwr-agent resume {folder}{_more(folder, facts['round'])}")
    typer.echo(f"logs: {folder / LOGS}")


def stop(folder: Folder) -> None:
    """Stop a run; what its last whole round has learned stays, and `resume` goes on from there."""
    launch = Launch.read(folder)
    if not launch.is_of(folder):
        raise ResumeError(f"nothing runs in {folder}: its {FILE} is of {launch.folder}; give the folder of the run")
    if launch.where.kind == SUPERLINK:
        with reached(launch.where) as link:
            link.stop(launch.run_id)
    elif (follower := launch.follower()) is None:
        raise ResumeError(f"nothing runs in {folder}")
    else:
        follower.terminate()
        end = time.monotonic() + STOP_S
        while launch.follower():
            if time.monotonic() > end:
                raise LaunchError(f"process {launch.pid} has not ended within {STOP_S:g} s; see {folder / LOGS}")
            time.sleep(POLL_S)
    typer.echo(f"stopped; go on with: flwr-agent resume {folder}")


def resume(
    context: typer.Context,
    folder: Folder,
    settings: Annotated[list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Changed settings.")] = None,
    *,
    detach: Annotated[bool, typer.Option("--detach", help="Leave once the SuperLink has the run.")] = False,
) -> None:
    """Go on with a run that was stopped or killed, as it was started, from its last whole round."""
    from flwr_agent.cli import run as running

    launch = Launch.read(folder)
    if _state(folder, launch) == RUNNING:
        raise ResumeError(f"{folder} is running; stop it first, or wait")
    if detach and launch.where.kind != SUPERLINK:
        raise ConfigError("--detach", "", "belongs to a run at a --superlink; this one ends with its command")
    changed = overrides.parse(settings or [])
    for key in ("output_dir", "fresh"):
        if changed.get(key, False):
            fix = "resume goes on with what is in the folder; leave it out, or start another run with flwr-agent run"
            raise ConfigError(key, changed[key], fix)
    flat = {**_settings(folder, launch), **changed, "fresh": False, "output_dir": str(folder)}
    plan = running.checked(
        presets.read(flat),
        base=folder,
        load_strategy=context.obj.load_strategy,
        is_here=launch.where.kind != SUPERLINK,
    )
    running.execute(plan, Console(), launch.where, detach=detach)


def _facts(folder: Path) -> dict[str, Any]:
    """What `status` shows, for machines.

    Raises:
        ResumeError: the folder holds no run.
    """
    if not (folder / FILE).is_file() and not (folder / LEDGER).is_file():
        raise ResumeError(f"{folder} holds neither {FILE} nor {LEDGER}; give the folder of a run")
    launch = Launch.read(folder) if (folder / FILE).is_file() else None
    seen = Progress.read(folder / LEDGER)
    last = seen.evaluations[-1] if seen.evaluations else None
    return {
        "folder": str(folder),
        "state": _state(folder, launch),
        "round": seen.round,
        "rounds": _rounds(folder),
        "clients": list(seen.clients),
        "failures": list(seen.failures),
        "evaluated": last["round"] if last else None,
        "success": last["metrics"].get("success") if last else None,
        "where": launch.where.superlink or launch.where.kind if launch else "flwr run",
        "run_id": launch.run_id if launch else None,
    }


def _state(folder: Path, launch: Launch | None) -> str:
    """`running`, `interrupted`, or `finished:` and how."""
    launch = launch if launch and launch.is_of(folder) else None
    if launch and launch.where.kind == SUPERLINK:
        with reached(launch.where) as link:
            found = link.status(launch.run_id)
        if found == FORGOTTEN:
            return INTERRUPTED
        return found if found.startswith("finished") else RUNNING
    rounds = _rounds(folder)
    if launch and launch.follower():
        return RUNNING
    return DONE if rounds and Progress.read(folder / LEDGER).complete == rounds else INTERRUPTED


def _settings(folder: Path, launch: Launch) -> Mapping[str, Any]:
    """What the run that the folder holds was told, beyond the defaults; a start that was refused is not that run."""
    config, defaults = _config(folder), resolve({}).flat()
    if unknown := sorted(config.keys() - defaults.keys()):
        fix = "go on with the version that wrote it"
        raise ResumeError(
            f"{folder / presets.RUN_FILE} has a key that this flwr-agent does not know: {unknown[0]}; {fix}"
        )
    return {key: value for key, value in config.items() if value != defaults[key]} if config else launch.settings


def _more(folder: Path, done: int) -> str:
    """What a resume must be told where the next round would exceed the privacy budget."""
    config = _config(folder)
    noise, budget = config.get("privacy.noise_multiplier"), config.get("privacy.budget")
    if not (noise and budget) or epsilon(noise, done + 1, config["privacy.delta"]) <= budget:
        return ""
    return f" privacy.budget=EPSILON, above {budget:g}, which the next round would exceed"


def _rounds(folder: Path) -> int:
    """Rounds that the run is to have, 0 if it has not said so yet."""
    return _config(folder).get("federation.rounds", 0)


def _config(folder: Path) -> dict[str, Any]:
    """Every key of the run in the folder, nothing before its ServerApp has begun or where the folder is not here."""
    return presets.of_run(folder) if (folder / presets.RUN_FILE).exists() else {}


def _listed(clients: list[int]) -> str:
    return ", ".join(map(str, clients)) or "nobody"
