"""`python -m flwr_agent run`: validate, start Flower, follow the run, end with its real status."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from flwr_agent import faults, presets, validate
from flwr_agent.cli import modules, overrides, preview
from flwr_agent.cli.bundle import app_folder
from flwr_agent.cli.progress import LEDGER, Display, Progress
from flwr_agent.config import RunConfig
from flwr_agent.errors import AgentError, ConfigError, ProtocolError
from flwr_agent.hosts import commands, local
from flwr_agent.hosts.launched import DEPLOYMENT, LOGS, SIMULATION, SUPERLINK, Launch, Where, check_free
from flwr_agent.hosts.local import Federation, Flower
from flwr_agent.hosts.rehearsal import Rehearsal
from flwr_agent.hosts.superlink import LaunchError, reached
from flwr_agent.policy import check_hub
from flwr_agent.rl import launch
from flwr_agent.validate import Strategy

POLL_S = 0.5
OUTAGE_S = 300.0
"""Seconds a SuperLink may be away before a run is given up; a run at somebody else's goes on there."""
COMPLETED = "finished:completed"
BEHIND = "; the SuperLink's database did not keep up with what clients send: add --in-memory for a large model"
PLAIN: Mapping[str, Any] = {"highlight": False, "markup": False, "soft_wrap": True}
"""How text is printed that must come out as it is."""
FILES = ("report.html", "federated_summary.json")
_ERROR = re.compile(r"(?:[\w.]+\.)?(\w*(?:Error|Exception|Interrupt)): (.+)")


class RunFailed(AgentError, RuntimeError):
    """The run ended otherwise than completed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """A validated run."""

    config: RunConfig
    explicit: Mapping[str, Any]
    """Dotted key -> value for Flower: what the preset and the overrides set, paths absolute."""


def plan(
    preset: str,
    arguments: Iterable[str],
    *,
    base: Path,
    load_strategy: Callable[[RunConfig], Strategy],
    is_here: bool = True,
) -> Plan:
    """Read and check everything that can be checked before a client starts.

    Args:
        preset: a name in conf/, or a YAML file.
        arguments: `key=value` overrides.
        base: folder that relative paths are under.
        load_strategy: finds the aggregation strategy, or raises.
        is_here: whether model, data and run folder are on this machine; the ServerApp checks them again where it runs.

    Raises:
        AgentError: what is wrong, in one line.
    """
    layers = presets.read({"preset": preset} | overrides.parse(arguments))
    return checked(layers, base=base, load_strategy=load_strategy, is_here=is_here)


def checked(
    layers: presets.Layers, *, base: Path, load_strategy: Callable[[RunConfig], Strategy], is_here: bool = True
) -> Plan:
    """The plan of what a user asked for; see `plan`."""
    layers = replace(layers, flat=overrides.absolute(layers.flat, base))
    config = presets.build(layers, base=base)
    if is_here:
        validate.check(config, layers.flat, load_strategy=load_strategy)
        validate.check_interpreter(config)
        validate.check_world(config)
    else:
        validate.check_knobs(config, layers.flat)
        load_strategy(config)
    return Plan(config=config, explicit=layers.flat | {"output_dir": config.output_dir})


def show(plan: Plan, console: Console, where: Where) -> None:
    """Print what would run and what it would need.

    Raises:
        ConfigError: `where` cannot run it.
    """
    _check_where(plan.config, where)
    console.print(preview.settings(plan.config, frozenset(plan.explicit)), **PLAIN)
    console.print(preview.estimate(plan.config, preview.size_of(_model(plan.config))))


def _model(config: RunConfig) -> str:
    if config.model.path != "tiny":
        return config.model.path
    from flwr_agent.rl import tiny

    return str(tiny.place(config))


def _prepare(config: RunConfig, display: Display) -> None:
    """Make the tiny policy now if this machine has not made it yet: no client's deadline runs while it takes its time.

    Raises:
        ConfigError: the policy is neither here nor on the hub.
    """
    check_hub(config.model.path)
    if config.model.path == "tiny" and not Path(_model(config)).exists():
        from flwr_agent.rl import tiny

        display.say("making the tiny policy, once per machine")
        tiny.ensure(config)


def execute(plan: Plan, console: Console, where: Where, *, detach: bool = False) -> None:
    """Run it where `where` says, follow it to its end and print where the results are.

    Args:
        plan: the validated run.
        console: shows progress.
        where: which Flower runs it.
        detach: leave once a SuperLink that goes on without us has taken the run.

    Raises:
        RunFailed: the run's own last word; its log is in the run folder.
        ResumeError: another process follows the run in that folder.
    """
    config, output = plan.config, Path(plan.config.output_dir)
    check_free(output)
    _check_where(config, where)
    if not config.fresh and is_complete(output, config):
        console.print(f"{result(output)}\nthis run is complete; add fresh=true to archive it and start over", **PLAIN)
        return
    log = output / LOGS / "run.log"
    said, at_link = _added(log), _added(output / LOGS / "superlink.log")
    fed = config.federation
    display = Display(console, output / LEDGER, rounds=fed.rounds, clients=fed.clients_per_round, fresh=config.fresh)
    launch.end_on_sigterm()
    with display.shown(), _flower(plan, where, display) as flower:
        run_id = flower.link.submit(app_folder(flower.link.cwd), plan.explicit, *_options(config, where))
        Launch(where=where, settings=plan.explicit, run_id=run_id).write(output)
        if detach:
            console.print(f"run {run_id} is at {where.superlink}; flwr-agent status {output} says how it goes", **PLAIN)
            return
        rehearsal = Rehearsal(
            faults.scheduled(config) if where.kind == DEPLOYMENT else (), flower.services, display.finished
        )
        status = _follow(flower, run_id, log, (flower.tend, rehearsal.step, display.update))
        details = "" if status == COMPLETED else flower.link.details(run_id)
    if status != COMPLETED:
        reason = why(said(), at_link(), details)
        raise RunFailed(f"run {status.removeprefix('finished:')}: {reason} (log: {log})")
    console.print(result(output), **PLAIN)


@contextmanager
def _flower(plan: Plan, where: Where, display: Display) -> Iterator[Flower]:
    if where.kind == SUPERLINK:
        display.say(f"submitting to {where.superlink}")
        Path(plan.config.output_dir, LOGS).mkdir(parents=True, exist_ok=True)
        with reached(where) as link:
            yield Flower(link=link, services={})
        return
    _prepare(plan.config, display)
    display.say("starting Flower")
    with local.flower(_federation(plan.config, where), Path(plan.config.output_dir) / LOGS) as flower:
        yield flower


def _federation(config: RunConfig, where: Where) -> Federation:
    fed = config.federation
    is_deployment = where.kind == DEPLOYMENT
    return Federation(
        num_nodes=(fed.total_clients or fed.clients_per_round) if is_deployment else fed.clients_per_round,
        threads=config.worker.torch_threads,
        gpus=config.worker.gpus * bool(launch.visible_gpus()),
        is_deployment=is_deployment,
        in_memory=where.in_memory,
        modules=tuple(modules.folders(config)),
    )


def _options(config: RunConfig, where: Where) -> tuple[str, ...]:
    if where.kind == SUPERLINK:
        return ("--federation", where.federation) if where.federation else ()
    return _federation(config, where).options()


def _check_where(config: RunConfig, where: Where) -> None:
    """Refuse before anything starts what every SuperNode would refuse, and faults where we start none."""
    if where.kind == SIMULATION:
        return
    if faults.scheduled(config) and where.kind == SUPERLINK:
        fix = "is for simulation and --deployment alone; leave it out"
        raise ConfigError(faults.KEY, config.federation.faults, fix)
    from flwr_agent import protocol

    try:
        protocol.own_code_only(config)
    except ProtocolError as error:
        raise ConfigError(f"--{where.kind}", where.superlink, str(error)) from None
    commands.check_deployment(commands.installed())


def is_complete(output: Path, config: RunConfig) -> bool:
    """Whether the folder holds this very run with nothing left to do; a damaged config.json is the ServerApp's to judge."""
    try:
        facts = json.loads((output / presets.RUN_FILE).read_text(encoding="utf-8"))
        if facts["fingerprint"] != config.fingerprint():
            return False
    except (FileNotFoundError, NotADirectoryError, ValueError, KeyError, TypeError, RecursionError):
        return False
    return Progress.read(output / LEDGER).complete == config.federation.rounds


def result(output: Path) -> str:
    """What a finished run achieved and where it is, in a few lines."""
    evaluations = Progress.read(output / LEDGER).evaluations
    lines = [_scores(evaluations[0], evaluations[-1], mode) for mode in ("", "greedy/")] if evaluations else []
    files = [output / name for name in FILES if (output / name).is_file()]
    return "\n".join([*filter(None, lines), *(f"{file.stem}: {file}" for file in files), f"run folder: {output}"])


def _scores(first: Mapping[str, Any], last: Mapping[str, Any], mode: str) -> str:
    name = f"{mode}success"
    if name not in first["metrics"] or name not in last["metrics"]:
        return ""
    num_tasks = len(first["outcomes"][f"{mode or 'sampled/'}success"])
    before, after = first["metrics"][name], last["metrics"][name]
    return (
        f"held-out success ({mode.rstrip('/') or 'sampled'}, {num_tasks} tasks): {before:.3f} before round 1, "
        f"{after:.3f} after round {last['round']}"
    )


def _added(log: Path) -> Callable[[], str]:
    """Reads what a log has got since now."""
    start = log.stat().st_size if log.is_file() else 0
    return lambda: log.read_bytes()[start:].decode(errors="replace") if log.is_file() else ""


def last_error(log: str) -> str:
    r"""The message of the last exception in a log, empty if there is none.

    Example:
        >>> last_error("Traceback\nflwr_agent.errors.ConfigError: seed=-1: must be at least 0\nExit Code: 700")
        'seed=-1: must be at least 0'
    """
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    found = [match for line in lines if (match := _ERROR.fullmatch(line))]
    return found[-1][2] if found else ""


def why(log: str, at_link: str, details: str) -> str:
    """Why a run failed.

    Args:
        log: of the run.
        at_link: the log of a SuperLink of its own.
        details: what Flower says, often nothing.
    """
    said = f" ({details})" if details else ""
    silent = f"the ServerApp ended without an error of its own{said}; the same command resumes the run"
    return (last_error(log) or silent) + (BEHIND if "database is locked" in at_link else "")


def _follow(flower: Flower, run_id: int, log: Path, steps: Sequence[Callable[[], None]]) -> str:
    """Keep a log of the run, and take `steps` again and again, until it has finished; returns its status."""
    while True:
        with flower.link.log(run_id, log) as stream:
            while stream.poll() is None:
                _take(steps)
        _take(steps)
        status = _status(flower, run_id)
        if status.startswith("finished"):
            return status


def _take(steps: Sequence[Callable[[], None]]) -> None:
    for step in steps:
        step()
    time.sleep(POLL_S)


def _status(flower: Flower, run_id: int) -> str:
    """The run's status, from a SuperLink that may be on its way up again."""
    end = time.monotonic() + OUTAGE_S
    while True:
        try:
            return flower.link.status(run_id)
        except LaunchError:
            if time.monotonic() > end:
                raise
            flower.tend()
            time.sleep(POLL_S)
