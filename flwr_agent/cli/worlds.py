"""`ENV [KEY=VALUE]...` of the commands that need an environment but no run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from envs import registry
from envs.base import EnvAdapter, Variant
from flwr_agent import settings
from flwr_agent.cli import overrides
from flwr_agent.config import KEYS, checked
from flwr_agent.errors import ConfigError
from flwr_agent.presets import scalar

STYLE = "prompt.style"
DEFAULT_STYLE = "paper"


@dataclass(frozen=True, slots=True)
class Named:
    """An environment by name, with its own settings.

    Example:
        >>> Named.of("tinyguess", ["prompt.style=compact"])
        Named(name='tinyguess', settings={}, style='compact')
    """

    name: str
    settings: dict[str, Any]
    style: str = ""
    """Prompt style; empty if none was asked for."""

    @classmethod
    def of(cls, name: str, arguments: Iterable[str]) -> Named:
        """Read `KEY=VALUE` arguments; `env.data_path` may be written `data_path`, and `env.settings.start` `start`.

        Raises:
            ConfigError: an argument is not `KEY=VALUE`, or a value of a key of the configuration that a run refuses too.
        """
        full = [a if a.startswith((f"{STYLE}=", "env.")) or "=" not in a else f"env.{a}" for a in arguments]
        values = {key: _valid(key, value) for key, value in settings.expanded(overrides.parse(full), scalar).items()}
        style = values.pop(STYLE, "")
        own = {key.removeprefix("env.").removeprefix("settings."): value for key, value in values.items()}
        return cls(name, own, style)

    def to_adapter(self, variant: Variant | None = None, *, style: str | None = None) -> EnvAdapter:
        """The environment's adapter.

        Raises:
            ConfigError: no such environment, or a setting that it does not take or refuses.
        """
        return registry.create(self.name, self.settings, style=style or self.style or DEFAULT_STYLE, variant=variant)


def _valid(key: str, value: Any) -> Any:
    if value == "":
        raise ConfigError(key, value, "has no value; give one, or leave the key out")
    return checked(key, value) if key in KEYS else value
