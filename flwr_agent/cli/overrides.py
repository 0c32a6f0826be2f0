"""Command-line arguments `key=value` as a flat dict of typed values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from flwr_agent import settings
from flwr_agent.config import KEYS
from flwr_agent.errors import ConfigError
from flwr_agent.presets import scalar

PATH_ENDINGS = ("path", "dir", "file", "python", "faults")
"""Last word of the keys whose value may be a path."""


def parse(arguments: Iterable[str]) -> dict[str, Any]:
    """Dotted key -> value; the later of two equal keys wins.

    Raises:
        ConfigError: an argument is not `key=value`.

    Example:
        >>> parse(["federation.rounds=5", "trainer.lr=1e-6", "env.name=webshop"])
        {'federation.rounds': 5, 'trainer.lr': 1e-06, 'env.name': 'webshop'}
    """
    found: dict[str, Any] = {}
    for argument in arguments:
        key, sign, text = argument.partition("=")
        if not sign or not key:
            raise ConfigError("argument", argument, "write key=value, for example federation.rounds=5")
        is_text = key in KEYS and KEYS[key].type is str
        found[key] = text if is_text or text == "" else scalar(text)
    return found


def absolute(values: Mapping[str, Any], base: Path) -> dict[str, Any]:
    """The same values with paths that exist under `base` made absolute, because the run works elsewhere."""
    entries = settings.expanded(values, scalar)
    return settings.folded({key: _absolute(key, value, base) for key, value in entries.items()})


def _absolute(key: str, value: Any, base: Path) -> Any:
    if not isinstance(value, str) or not value or not key.endswith(PATH_ENDINGS):
        return value
    try:
        path = base / Path(value).expanduser()
        return str(path) if path.exists() else value
    except (RuntimeError, OSError, ValueError) as error:
        raise ConfigError(key, value, f"is no path here: {error}") from error
