"""Worlds of one's own: a function turns the standard environment into one client's.

A partition names it as the variant of a shard, `Variant("my_worlds:half_shelf", {"side": 1})`, or by the name under which an
installed package offers it.
"""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Callable, Mapping
from importlib.metadata import entry_points
from typing import Any

from envs import named
from envs.base import EnvAdapter, Variant
from envs.wrapper import Wrapper
from flwr_agent.errors import ConfigError

GROUP = "flwr_agent.variants"
"""Entry-point group in which an installed package offers variants."""
KEY = "partition.strategy"

Vary = Callable[[EnvAdapter, Mapping[str, Any]], EnvAdapter]
"""`(standard adapter, params) -> adapter`; the adapter is this client's alone and may be changed in place."""


def target_of(variant: Variant) -> str | None:
    """Where a variant of one's own is, as `module:function`; None for a variant of the environment itself."""
    if ":" in variant.name:
        return variant.name
    return next((point.value for point in entry_points(group=GROUP, name=variant.name)), None)


def refuse(name: str, variant: Variant | None) -> None:
    """What an environment without variants of its own says to one.

    Raises:
        ConfigError: a variant was asked for.
    """
    if variant is not None:
        raise ConfigError(KEY, variant.name, f"environment {name!r} has no variants")


def varied(adapter: EnvAdapter, variant: Variant, target: str) -> EnvAdapter:
    """The standard environment as `variant` has it.

    Raises:
        ConfigError: no such function, or it fails.
    """
    vary: Vary = named.load(KEY, variant.name, target)
    with named.blamed(KEY, variant.name, "cannot make its world"):
        found = vary(adapter, variant.params)
    if not isinstance(found, EnvAdapter):
        raise ConfigError(KEY, variant.name, f"gives a {type(found).__name__}, not an adapter")
    return Varied(found, variant, inspect.getsource(vary))


class Varied(Wrapper):
    """An environment in a client's own world, which its fingerprint tells apart."""

    def __init__(self, inner: EnvAdapter, variant: Variant, source: str):
        super().__init__(inner)
        self._facts = [variant.name, dict(variant.params), source]

    def fingerprint(self) -> str:
        """Digest of the environment, the variant and the text of its function."""
        text = json.dumps([self.inner.fingerprint(), self._facts], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()
