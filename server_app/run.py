"""A run from its configuration to its summary: open or resume, play the rounds, remember each."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from flwr.app import ConfigRecord
from flwr.serverapp import Grid

import strategies
from flwr_agent import critics, protocol
from flwr_agent.arrays import digest, from_record, replace, to_record
from flwr_agent.config import RunConfig
from flwr_agent.report import write as report
from flwr_agent.requests import EvaluateReply, EvaluateRequest, InitialModel
from server_app import checkpoint, client_metrics, summary
from server_app.announce import announce
from server_app.checkpoint import RunState
from server_app.evaluate import Evaluation, Play, is_due, on_client, on_server
from server_app.ledger import FILE, Ledger, Line
from server_app.sites import on_sites
from server_app.trackers import Sinks
from strategies import ClientOutcome, Observer, Round, RoundStrategy

logger = logging.getLogger("flwr.agent")


def run(
    config: RunConfig,
    grid: Grid,
    *,
    initial_model: Callable[[RunConfig], InitialModel],
    serve: Callable[[EvaluateRequest], EvaluateReply],
) -> None:
    """Run or resume the federation that `config` describes in `config.output_dir`.

    Args:
        config: the run.
        grid: the way to the nodes.
        initial_model: makes the model of round 0.
        serve: plays held-out tasks in this process, where `evaluation.where=server`.

    Raises:
        ConfigError: no such strategy.
        ResumeError: the folder holds something that this run must not continue.
        QuorumError: too few clients answered a round; run again to resume.
        BudgetError: the next round would spend more than `privacy.budget`.
        FullError: the disk of the run folder is full.
    """
    strategy = strategies.load(config)
    folder = Path(config.output_dir)
    with checkpoint.held(folder), checkpoint.room(folder):
        if config.fresh:
            checkpoint.archive(folder)
        state, ledger, tail = _open(folder, config, initial_model)
        record = _prepare(strategy, folder, config, state)
        sinks = Sinks(config, folder)
        ledger.tell = sinks.take
        play = _play(config, grid, record, state.experiment, serve)
        evaluation = Evaluation(config, ledger, play, done=_scored(ledger.lines()))
        try:
            strategy.start(
                grid,
                to_record(state.arrays, keep_input=False),
                num_rounds=config.federation.rounds,
                timeout=config.federation.round_timeout_s,
                train_config=record,
                evaluate_fn=evaluation,
                first_round=state.round + 1,
                observer=_Recorder(folder, config, ledger, state),
                replay={line["round"]: line["clients"] for line in tail if line["kind"] == "accepted"},
            )
            if not is_due(config, last := config.federation.rounds) or last in _scored(ledger.lines()):
                ledger.append("complete", round=last)
        finally:
            _write_up(folder, config, ledger.lines())
            sinks.close()


def _prepare(strategy: RoundStrategy, folder: Path, config: RunConfig, state: RunState) -> ConfigRecord:
    strategy.load_state(state.strategy)
    announce(folder, config, strategy, state.arrays)
    own = {"experiment": state.experiment, "base_digest": state.base_digest}
    return protocol.run_record(config, **own, in_buckets=True)


class _Recorder(Observer):
    """Writes what happens to the ledger, and a checkpoint after each round."""

    def __init__(self, folder: Path, config: RunConfig, ledger: Ledger, start: RunState) -> None:
        self._folder, self._config, self._ledger, self._start = folder, config, ledger, start

    def answered(self, outcome: ClientOutcome) -> None:
        self._ledger.append("client", **dataclasses.asdict(outcome))

    def accepted(self, round_: int, clients: Sequence[int]) -> None:
        self._ledger.append("accepted", round=round_, clients=list(clients))

    def finished(self, round_: Round) -> None:
        started = time.monotonic()
        arrays = from_record(round_.arrays)
        model_digest = digest(arrays)
        seconds = {**round_.seconds, "digest": time.monotonic() - started}
        facts = {
            f.name: getattr(round_, f.name) for f in dataclasses.fields(round_) if f.name not in ("arrays", "state")
        }
        self._ledger.append("round", **{**facts, "seconds": seconds, "digest": model_digest})
        state = dataclasses.replace(
            self._start,
            round=round_.round,
            arrays=arrays,
            strategy=dict(round_.state),
            digest=model_digest,
            clients=tuple(round_.clients),
            ledger_position=self._ledger.position,
        )
        started = time.monotonic()
        checkpoint.save(self._folder, state, self._config)
        self._ledger.append("checkpoint", round=round_.round, seconds=time.monotonic() - started)


def _write_up(folder: Path, config: RunConfig, lines: Sequence[Line]) -> None:
    """Write summary, metrics and page; a page that cannot be made is a warning, never the end of a run."""
    summary.write(folder, config, lines)
    client_metrics.write(folder, lines, epochs=config.federation.epochs_per_round)
    try:
        if config.report.page:
            report.write([folder], folder)
    except Exception as error:  # noqa: BLE001 (a sink for people)
        logger.warning("no report: %s", error)


def _open(
    folder: Path, config: RunConfig, initial_model: Callable[[RunConfig], InitialModel]
) -> tuple[RunState, Ledger, list[Line]]:
    """The state to go on from, the ledger cut back to it, and what a dead attempt had written after it."""
    state = checkpoint.resume(folder, config)
    if state is None:
        checkpoint.check_is_ours(folder, config)
    _write_config(folder, config)
    if state is None:
        (folder / FILE).unlink(missing_ok=True)
        ledger = Ledger(folder)
        return _begin(folder, config, initial_model(config), ledger), ledger, []
    ledger = Ledger(folder)
    tail = ledger.rewind(state.ledger_position)
    for line in tail:
        if line["kind"] == "accepted" or (line["kind"] == "evaluation" and line["round"] <= state.round):
            ledger.append(**line)
    accepted = [line["clients"] for line in tail if line["kind"] == "accepted"]
    ledger.append("resume", round=state.round, accepted=accepted[-1] if accepted else None)
    return state, ledger, tail


def _begin(folder: Path, config: RunConfig, model: InitialModel, ledger: Ledger) -> RunState:
    if config.algorithm.name == "ppo":
        ledger.append("critic", **dataclasses.asdict(critics.find(config)))
    archived = sum(1 for _ in (folder / checkpoint.ARCHIVE).glob("*"))  # a fresh run is not the one that it archives
    experiment = hashlib.sha256(f"{folder}\0{config.fingerprint()}\0{archived}".encode()).hexdigest()[:16]
    state = RunState(
        round=0,
        arrays=model.arrays,
        digest=digest(model.arrays),
        base_digest=model.base_digest,
        experiment=experiment,
        ledger_position=ledger.position,
    )
    checkpoint.save(folder, state, config)
    return state


def _write_config(folder: Path, config: RunConfig) -> None:
    facts = {"fingerprint": config.fingerprint(), "config": config.flat()}
    tmp = folder / "config.json.tmp"
    tmp.write_text(json.dumps(facts, indent=1), encoding="utf-8")
    replace(tmp, folder / "config.json")


def _scored(lines: Sequence[Line]) -> set[int]:
    return {line["round"] for line in lines if line["kind"] == "evaluation"}


def _play(
    config: RunConfig,
    grid: Grid,
    record: ConfigRecord,
    experiment: str,
    serve: Callable[[EvaluateRequest], EvaluateReply],
) -> Play:
    if config.evaluation.where == "sites":
        return on_sites(grid, record, config.federation)
    if config.evaluation.where == "client":
        return on_client(grid, record, timeout_s=config.federation.round_timeout_s)
    return on_server(config, experiment, serve)
