"""Where the modules live that a run names as `module:name`, so that its clients look there too."""

from __future__ import annotations

import importlib.util
import sysconfig
from pathlib import Path

from flwr_agent.config import RunConfig

NAMING = ("env.name", "env.verifier", "partition.strategy", "strategy.name", "algorithm.advantage")
"""Keys whose value may be `module:name`."""


def folders(config: RunConfig) -> list[Path]:
    """The folders that this process found those modules in, other than where every Python finds what is installed.

    Example:
        >>> from flwr_agent.config import resolve
        >>> folders(resolve({"env.name": "tinyguess"}))
        []
    """
    names = [str(config.flat()[key]) for key in NAMING]
    modules = {name.partition(":")[0].partition(".")[0] for name in names if ":" in name and "://" not in name}
    found = {folder for module in sorted(modules) for folder in _folders(module)}
    return sorted(found - {Path(path).resolve() for path in sysconfig.get_paths().values()})


def _folders(module: str) -> list[Path]:
    spec = importlib.util.find_spec(module)
    if spec is None:
        return []
    if spec.submodule_search_locations is not None:
        return [Path(location).resolve().parent for location in spec.submodule_search_locations]
    return [Path(spec.origin).resolve().parent] if spec.has_location and spec.origin else []
