"""The configuration edge: a flat dict from Flower or the command line becomes a `RunConfig`.

Precedence is defaults < preset < overrides. A preset is a YAML file of differences from the defaults, with nested
or dotted keys.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from flwr_agent import settings
from flwr_agent.config import RunConfig, resolve
from flwr_agent.errors import ConfigError, DataError
from flwr_agent.paths import CONF

RUN_FILE = "config.json"
"""The resolved configuration in a run folder."""
HOME_RUNS = Path("~/flwr_agent_runs")
"""Where `output_dir=auto` puts a run that Flower started; it has no working directory of the user's."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Layers:
    """What a user asked for, before the defaults.

    Example:
        >>> read({"preset": "tinyguess", "seed": 7}).flat["env.name"]
        'tinyguess'
    """

    name: str
    """Preset name, `default` without one."""
    flat: dict[str, Any]
    """Dotted key -> value: the preset's keys with the overrides on top; keys left unset are absent."""
    sources: dict[str, str]
    """`file:line` of each key whose value comes from the preset."""


def names() -> list[str]:
    """Names of the presets that ship with the app."""
    return sorted(path.stem for path in CONF.glob("*.yaml"))


def load(run_config: Mapping[str, Any], *, base: Path | None = None) -> RunConfig:
    """The configuration of a run, with an absolute `output_dir`.

    Args:
        run_config: dotted key -> value, plus `preset`; `""` means unset.
        base: folder that a relative `output_dir` and `auto` are under; None means that there is none (Flower starts
            apps in a folder of its own), so that `auto` goes under the home folder and a relative path is refused.

    Raises:
        ConfigError: an unknown preset, or a key that is unknown, of the wrong type, out of range or contradictory.
        DataError: the preset file is not a mapping of keys to scalars.
    """
    return build(read(run_config), base=base)


def read(run_config: Mapping[str, Any]) -> Layers:
    """Lay the overrides over their preset without checking the keys.

    Raises:
        ConfigError: there is no such preset.
        DataError: the preset file is malformed.
    """
    preset = run_config.get("preset", "")
    given = {key: value for key, value in run_config.items() if key != "preset" and value != ""}
    overrides = settings.expanded(given, scalar)
    if preset in ("", "none"):
        return Layers(name="default", flat=settings.folded(overrides), sources={})
    path = _find(preset)
    entries = parse(path)
    flat = settings.laid({key: value for key, (value, _) in entries.items()}, overrides)
    sources = {key: f"{path.name}:{line}" for key, (_, line) in entries.items() if key not in overrides}
    return Layers(name=path.stem, flat=flat, sources=sources)


def build(layers: Layers, *, base: Path | None = None) -> RunConfig:
    """Check the keys and lay them over the defaults; see `load`."""
    try:
        config = resolve(layers.flat)
    except ConfigError as error:
        if error.key in layers.sources:
            raise error.at(layers.sources[error.key]) from None
        raise
    return replace(config, output_dir=str(_output_dir(config, layers.name, base)))


def of_run(folder: Path) -> dict[str, Any]:
    """Dotted key -> value of the run in a folder, as it was resolved.

    Raises:
        DataError: the folder is not one of a run, or the file is damaged.
    """
    file = folder / RUN_FILE
    try:
        return dict(json.loads(file.read_text(encoding="utf-8"))["config"])
    except OSError as error:
        raise DataError(file, "config", f"cannot be read ({error}); give the folder of a run") from None
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        fix = "restore it, or give the command of the run again, which writes it anew beside a checkpoint"
        raise DataError(file, "config", f"is damaged ({error}); {fix}") from None


def parse(path: Path) -> dict[str, tuple[Any, int]]:
    """Dotted key -> (value, line number) of a YAML preset, in file order.

    Raises:
        DataError: names the file, the line and the key.
    """
    loader = _Loader(_text(path))
    try:
        root = loader.get_single_node()
        leaves = list(_leaves(loader, root, "")) if isinstance(root, yaml.MappingNode) else None
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise DataError(f"{path}:{line}", "YAML", f"{error.problem}; write `key: value` lines") from None
    except (yaml.YAMLError, ValueError, AttributeError, KeyError, RecursionError) as error:
        raise DataError(path, "YAML", f"{str(error).splitlines()[0]}; write `key: value` lines") from None
    if root is None:
        return {}
    if leaves is None:
        raise DataError(f"{path}:1", "YAML", "must be a mapping of keys to values")
    found: dict[str, tuple[Any, int]] = {}
    for key, value, line in leaves:
        if key in found:
            raise DataError(f"{path}:{line}", key, f"already set in line {found[key][1]}; keep one of the two")
        if value is None or value == "":
            raise DataError(f"{path}:{line}", key, "has no value; write one, or drop the key")
        found[key] = (value, line)
    return found


def scalar(text: str) -> Any:
    """The value of one YAML scalar: `5` is an int, `1e-6` a float, `true` a bool, `off` and `[` are words."""
    try:
        return _Loader(text).get_single_data()
    except (yaml.YAMLError, ValueError, AttributeError, KeyError):
        return text


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(path, "YAML", f"cannot be read: {error}") from None


class _Loader(yaml.SafeLoader):
    """YAML with the numbers and booleans of version 1.2: `1e-6` is a number, `off` and `no` are words."""


_Loader.yaml_implicit_resolvers = {
    letter: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith((":bool", ":float", ":timestamp"))]
    for letter, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:bool", re.compile(r"^(true|True|TRUE|false|False|FALSE)$"), list("tTfF")
)
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(\d+\.\d*([eE][-+]?\d+)?|\.\d+([eE][-+]?\d+)?|\d+[eE][-+]?\d+)$"),
    list("-+.0123456789"),
)


def _leaves(loader: _Loader, node: yaml.MappingNode, prefix: str) -> Iterator[tuple[str, Any, int]]:
    for key_node, value_node in node.value:
        key = f"{prefix}{key_node.value}"
        if isinstance(value_node, yaml.MappingNode) and prefix.removesuffix(".") not in settings.KEYS:
            yield from _leaves(loader, value_node, key + ".")
        else:
            yield key, loader.construct_object(value_node, deep=True), key_node.start_mark.line + 1


def _find(preset: object) -> Path:
    if not isinstance(preset, str):
        raise ConfigError("preset", preset, "must be the name of a preset or a YAML file", allowed=names())
    if preset.endswith((".yaml", ".yml")):
        path = Path(preset).expanduser().absolute()
        if path.is_file():
            return path
        raise ConfigError("preset", preset, "no such file")
    path = CONF / f"{preset}.yaml"
    if preset not in names():
        raise ConfigError("preset", preset, "no such preset, and not a .yaml file", allowed=names())
    return path


def _output_dir(config: RunConfig, name: str, base: Path | None) -> Path:
    if config.output_dir == "auto":
        runs = HOME_RUNS.expanduser() if base is None else base / "runs"
        return runs / f"{name}-seed{config.seed}"
    path = Path(config.output_dir).expanduser()
    if base is None and not path.is_absolute():
        raise ConfigError(
            "output_dir", config.output_dir, "must be an absolute path, because Flower runs apps elsewhere"
        )
    return path if base is None else base / path
