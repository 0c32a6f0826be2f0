"""Finds an environment by name and builds its adapter; nothing is imported before it is asked for."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import Any

from envs.base import EnvAdapter, Variant
from envs.plain import PlainAdapter, is_plain
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
_NOT_SETTINGS = frozenset({"self", "style", "variant"})


def create(
    name: str, settings: Mapping[str, Any], *, style: str = "paper", variant: Variant | None = None
) -> EnvAdapter:
    """The adapter of environment `name`, built with `settings`, in one prompt style and one client's world.

    `name` is a built-in name, an entry point of the group `flwr_agent.envs`, `module:Class`, or `module:function` of
    one that returns an adapter. A class without `make` that has `tasks`, `reset` and `step` is wrapped (`envs.plain`).

    Raises:
        ConfigError: no such environment, a setting it does not take, or a package it needs is missing.

    Example:
        >>> create("tinyguess", {}, style="compact").name
        'tinyguess'
    """
    cls = _load(name)
    known = knobs(name)
    for key, value in settings.items():
        if key not in known:
            raise ConfigError(f"env.{key}", value, f"environment {name!r} does not use this key; leave it unset")
    own = {key: value for key, value in settings.items() if key not in SHARED}
    if is_plain(cls):
        adapter: EnvAdapter = PlainAdapter(cls, name, own, style=style, variant=variant)
    else:
        adapter = cls(**own, style=style, variant=variant)
    return verified(adapter, settings.get("verifier", NONE), weight=settings.get("verifier_weight", 1.0))


def knobs(name: str) -> frozenset[str]:
    """Names of the settings that the environment takes: its constructor's, and those that all share.

    Raises:
        ConfigError: no such environment, or a package it needs is missing.

    Example:
        >>> sorted(knobs("tinyguess"))
        ['verifier', 'verifier_weight']
    """
    parameters = inspect.signature(_load(name)).parameters.values()
    named = (p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY))
    return frozenset(named) - _NOT_SETTINGS | SHARED


def names() -> list[str]:
    """Every name that `create` knows without a colon, sorted."""
    return sorted({*BUILTIN, *(point.name for point in entry_points(group=GROUP))})


def _load(name: str) -> Any:
    module, colon, attribute = _target(name).partition(":")
    if not colon:
        raise ConfigError("env.name", name, "an entry point must have the form module:Class")
    try:
        cls = getattr(importlib.import_module(module), attribute, None)
    except ModuleNotFoundError as error:
        raise ConfigError("env.name", name, _missing(name, module, error.name or module)) from error
    except Exception as error:
        raise ConfigError("env.name", name, f"cannot be imported: {type(error).__name__}: {error}") from error
    if not (inspect.isclass(cls) or inspect.isfunction(cls)):
        raise ConfigError("env.name", name, f"module {module} has no class or function {attribute!r}")
    return cls


def _target(name: str) -> str:
    if ":" in name:
        return name
    if name in BUILTIN:
        return BUILTIN[name]
    for point in entry_points(group=GROUP, name=name):
        return point.value
    raise ConfigError("env.name", name, "no such environment; name one of these or module:Class", allowed=names())


def _missing(name: str, module: str, package: str) -> str:
    if module == package or module.startswith(f"{package}."):
        return f"module {package!r} cannot be found; check the spelling and the Python path"
    if name in BUILTIN:
        return f"needs the package {package!r}: pip install 'flwr-agent[{name}]'"
    return f"needs the package {package!r}, which is not installed"
