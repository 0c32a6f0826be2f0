"""Finds an environment by name and builds its adapter; nothing is imported before it is asked for."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import Any

from envs import named
from envs.base import EnvAdapter, Variant
from envs.plain import PlainAdapter, is_plain
from envs.variant import target_of, varied
from envs.verifier import NONE, verified
from flwr_agent.errors import ConfigError

GROUP = "flwr_agent.envs"
"""Entry-point group in which an installed package offers environments."""

BUILTIN: Mapping[str, str] = {
    "tinyguess": "envs.tinyguess:TinyGuess",
    "minihouse": "envs.minihouse:MiniHouse",
    "webshop": "envs.webshop:WebShop",
    "alfworld": "envs.alfworld:AlfWorld",
    "harbor": "envs.harbor:Harbor",
    "remote": "envs.remote:Remote",
}
"""Name -> `module:Class` of the environments of this package."""

SHARED = frozenset({"verifier", "verifier_weight"})
"""Settings of every environment; see `envs.verifier`."""
SCALARS: Mapping[str, type] = {kind.__name__: kind for kind in (bool, int, float, str)}
"""Annotation -> type of the settings whose values are checked against it."""
_ADAPTER = (*EnvAdapter.__annotations__, *(name for name in vars(EnvAdapter) if not name.startswith("_")))
"""What every adapter has."""
_NOT_SETTINGS = frozenset({"self", "style", "variant"})


def create(
    name: str, settings: Mapping[str, Any], *, style: str = "paper", variant: Variant | None = None
) -> EnvAdapter:
    """The adapter of environment `name`, built with `settings`, in one prompt style and one client's world.

    `name` is a built-in name, an entry point of the group `flwr_agent.envs`, `module:Class`, or `module:function` of
    one that returns an adapter. A class without `make` that has `tasks`, `reset` and `step` is wrapped (`envs.plain`).
    A variant is the environment's own or one of anyone's (`envs.variant`).

    Raises:
        ConfigError: no such environment, a setting it does not take or of another type than its constructor says, or a
            package it needs is missing.

    Example:
        >>> create("tinyguess", {}, style="compact").name
        'tinyguess'
    """
    _check_settings(name, settings)
    own = {key: value for key, value in settings.items() if key not in SHARED}
    if variant is not None and (target := target_of(variant)):
        adapter = varied(create(name, own, style=style), variant, target)
    else:
        adapter = _build(name, own, style, variant)
    return verified(adapter, settings.get("verifier", NONE), weight=settings.get("verifier_weight", 1.0))


def knobs(name: str) -> frozenset[str]:
    """Names of the settings that the environment takes: its constructor's, and those that all share.

    Raises:
        ConfigError: no such environment, or a package it needs is missing.

    Example:
        >>> sorted(knobs("tinyguess"))
        ['verifier', 'verifier_weight']
    """
    return frozenset(_parameters(name)) | SHARED


def names() -> list[str]:
    """Every name that `create` knows without a colon, sorted."""
    return sorted({*BUILTIN, *(point.name for point in entry_points(group=GROUP))})


def _build(name: str, settings: Mapping[str, Any], style: str, variant: Variant | None) -> EnvAdapter:
    cls = _load(name)
    if isinstance(cls, type) and not hasattr(cls, "make"):
        _refuse_lacking(name, cls, ("tasks", "reset", "step"))
    with named.blamed("env.name", name, "cannot be made"):
        if is_plain(cls):
            adapter: EnvAdapter = PlainAdapter(cls, name, settings, style=style, variant=variant)
        else:
            adapter = cls(**settings, style=style, variant=variant)
    _refuse_lacking(name, adapter, _ADAPTER)
    return adapter


def _refuse_lacking(name: str, found: object, methods: tuple[str, ...]) -> None:
    if lacking := [method for method in methods if not hasattr(found, method)]:
        fix = f"has no {' and no '.join(lacking)}; write tasks, reset and step, or all of envs.base.EnvAdapter"
        raise ConfigError("env.name", name, fix)


def _parameters(name: str) -> dict[str, inspect.Parameter]:
    """The settings of the constructor alone."""
    found = _load(name)
    with named.blamed("env.name", name, "is no environment"):
        parameters = inspect.signature(found).parameters.values()
    by_name = (p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY))
    return {p.name: p for p in by_name if p.name not in _NOT_SETTINGS}


def _check_settings(name: str, settings: Mapping[str, Any]) -> None:
    parameters = _parameters(name)
    for key, value in settings.items():
        if key not in parameters and key not in SHARED:
            raise ConfigError(f"env.{key}", value, f"environment {name!r} does not use this key; leave it unset")
    for key, parameter in parameters.items():
        if key in settings:
            _check_type(key, settings[key], parameter)
        elif parameter.default is inspect.Parameter.empty:
            raise ConfigError(f"env.settings.{key}", "", f"environment {name!r} needs a value")


def _check_type(key: str, value: object, parameter: inspect.Parameter) -> None:
    """Refuse a value of another type than the parameter's, where that is a plain one."""
    annotation = parameter.annotation  # a text under `from __future__ import annotations`
    kind = SCALARS.get(annotation if isinstance(annotation, str) else getattr(annotation, "__name__", ""))
    is_whole = kind is float and type(value) is int
    if kind and not (type(value) is kind or is_whole or value == parameter.default):
        raise ConfigError(f"env.settings.{key}", value, f"must be of type {kind.__name__}, not {type(value).__name__}")


def _load(name: str) -> Any:
    """The class or function behind a name; a built-in that lacks a package names the extra that has it."""
    try:
        found = named.load("env.name", name, _target(name))
    except ConfigError as error:
        if name in BUILTIN and isinstance(error.__cause__, ModuleNotFoundError):
            fix = f"needs the package {error.__cause__.name!r}: pip install 'flwr-agent[{name}]'"
            raise ConfigError("env.name", name, fix) from error
        raise
    if not (inspect.isclass(found) or inspect.isfunction(found)):
        raise ConfigError("env.name", name, "is neither a class nor a function")
    return found


def _target(name: str) -> str:
    if ":" in name:
        return name
    if name in BUILTIN:
        return BUILTIN[name]
    for point in entry_points(group=GROUP, name=name):
        return point.value
    raise ConfigError("env.name", name, "no such environment; name one of these or module:Class", allowed=names())
