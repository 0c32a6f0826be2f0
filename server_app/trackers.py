"""Experiment trackers: every line of the ledger is shown to those that the configuration names.

One that cannot be started stops the run before any client works; one that fails later is dropped with a warning.
"""

from __future__ import annotations

import importlib
import logging
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

from flwr_agent.config import RunConfig
from flwr_agent.errors import ConfigError
from flwr_agent.tracking import KEY, names
from server_app.ledger import Line

logger = logging.getLogger("flwr.agent")


class Tracker(Protocol):
    """Somewhere that figures go to."""

    def log(self, values: Mapping[str, float], step: int) -> None:
        """Take in figures of one round."""
        ...

    def close(self) -> None:
        """Send what is left."""
        ...


class _TensorBoard:
    """Event files in the run folder, for `tensorboard --logdir`."""

    def __init__(self, config: RunConfig, folder: Path) -> None:  # noqa: ARG002 (the form of a tracker)
        self._writer = importlib.import_module("tensorboardX").SummaryWriter(str(folder / "tensorboard"))

    def log(self, values: Mapping[str, float], step: int) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


class _WandB:
    """A run of Weights & Biases; a resumed run goes on in it."""

    def __init__(self, config: RunConfig, folder: Path) -> None:
        start = importlib.import_module("wandb").init
        own = {"id": config.fingerprint()[:12] + "-" + folder.name, "resume": "allow"}
        self._run = start(project=config.report.project, name=folder.name, dir=str(folder), config=config.flat(), **own)

    def log(self, values: Mapping[str, float], step: int) -> None:
        self._run.log(dict(values), step=step)

    def close(self) -> None:
        self._run.finish()


class _MLflow:
    """A run at the MLflow server or folder that `MLFLOW_TRACKING_URI` names."""

    def __init__(self, config: RunConfig, folder: Path) -> None:
        self._mlflow = importlib.import_module("mlflow")
        self._mlflow.set_experiment(config.report.project)
        self._mlflow.start_run(run_name=folder.name)
        self._mlflow.log_params(config.flat())

    def log(self, values: Mapping[str, float], step: int) -> None:
        self._mlflow.log_metrics(dict(values), step=step)

    def close(self) -> None:
        self._mlflow.end_run()


class _Trackio(_WandB):
    """A run in Trackio's local database, by the same calls."""

    def __init__(self, config: RunConfig, folder: Path) -> None:
        start = importlib.import_module("trackio").init
        self._run = start(project=config.report.project, name=folder.name, config=config.flat(), resume="allow")


TRACKERS: dict[str, Callable[[RunConfig, Path], Tracker]] = {
    "tensorboard": _TensorBoard,
    "wandb": _WandB,
    "mlflow": _MLflow,
    "trackio": _Trackio,
}


class Sinks:
    """The trackers of a run."""

    def __init__(self, config: RunConfig, folder: Path) -> None:
        """Start all of them.

        Raises:
            ConfigError: one does not start; names it and says why.
        """
        self._open: dict[str, Tracker] = {}
        for name in names(config):
            try:
                self._open[name] = TRACKERS[name](config, folder)
            except Exception as error:
                self.close()
                reason = " ".join(f"{type(error).__name__}: {error}".split())
                raise ConfigError(KEY, name, f"does not start ({reason}); set it up, or leave it out") from error

    def take(self, line: Line) -> None:
        """Show a ledger line to all."""
        values = dict(to_values(line))
        if values:
            self._each(lambda tracker: tracker.log(values, line["round"]))

    def close(self) -> None:
        """End all."""
        self._each(lambda tracker: tracker.close())
        self._open = {}

    def _each(self, act: Callable[[Tracker], None]) -> None:
        for name, tracker in list(self._open.items()):
            try:
                act(tracker)
            except Exception as error:  # noqa: BLE001 (a metric sink)
                logger.warning("tracker %s failed and is left out from here on: %s", name, error)
                del self._open[name]


def to_values(line: Line) -> Iterator[tuple[str, float]]:
    """The figures in a ledger line, as `held_out/success`, `train/reward`, `client-3/success` or `seconds/send`."""
    prefix = {"evaluation": "held_out", "round": "train", "client": f"client-{line.get('client_id')}"}.get(line["kind"])
    if prefix is None or line.get("status", "accepted") != "accepted":
        return
    yield from _finite(prefix, line["metrics"])
    if line["kind"] == "round":
        yield from _finite("seconds", line["seconds"])
        yield from _finite("bytes", line["payload_bytes"])


def _finite(prefix: str, values: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    for name, value in values.items():
        if value is not None and math.isfinite(value):
            yield f"{prefix}/{name}", float(value)
