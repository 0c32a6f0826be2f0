"""Folders of runs, as commands read them."""

from __future__ import annotations

import json
from pathlib import Path

from flwr_agent.config import RunConfig, Scalar, resolve
from flwr_agent.errors import DataError


def flat_of(run: Path) -> dict[str, Scalar]:
    """The settings of a run, flat.

    Raises:
        DataError: the folder is no run's.
    """
    file = run / "config.json"
    try:
        return dict(json.loads(file.read_text(encoding="utf-8"))["config"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(file, "config", f"cannot be read ({error}); give the folder of a run") from None


def config_of(run: Path) -> RunConfig:
    """The configuration of a run.

    Raises:
        DataError: the folder is no run's.
        ConfigError: its settings are not of this version.
    """
    return resolve(flat_of(run))
