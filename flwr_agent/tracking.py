"""Which experiment trackers a configuration names, and whether they are installed."""

from __future__ import annotations

import importlib.util

from flwr_agent.config import RunConfig
from flwr_agent.errors import ConfigError

KEY = "report.trackers"
MODULES = {
    "tensorboard": ("tensorboardX", "train"),
    "wandb": ("wandb", "wandb"),
    "mlflow": ("mlflow", "mlflow"),
    "trackio": ("trackio", "trackio"),
}
"""Tracker -> the module it needs and the extra that brings it."""


def names(config: RunConfig) -> tuple[str, ...]:
    """The trackers in `report.trackers`, each once.

    Example:
        >>> names(resolve({"report.trackers": "tensorboard,wandb"}))
        ('tensorboard', 'wandb')
    """
    words = [word.strip() for word in config.report.trackers.split(",")]
    return tuple(dict.fromkeys(word for word in words if word not in ("", "none")))


def check(config: RunConfig) -> None:
    """Refuse a tracker that does not exist or is not installed.

    Raises:
        ConfigError: names it and the fix.
    """
    for name in names(config):
        if name not in MODULES:
            raise ConfigError(KEY, name, "no such tracker", allowed=("none", *MODULES))
        module, extra = MODULES[name]
        if importlib.util.find_spec(module) is None:
            raise ConfigError(KEY, name, f"{module} is not installed; pip install 'flwr-agent[{extra}]'")
