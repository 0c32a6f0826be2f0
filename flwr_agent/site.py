"""A site's own say: where its data and model are, what it works with, and what it will not do for a server.

A SuperNode names a YAML file in its node_config, `--node-config 'partition-id=3 site="/etc/flwr-agent/site.yaml"'`:

    use:
      env.data_path: /data/hospital
      model.path: /models/policy
      rollout.engine: transformers
    limits:
      federation.epochs_per_round: 3
    only:
      env.name: webshop, minihouse

What its SuperNode does to weights before it sends them stands in the node_config itself, as `privacy.mods` and the like.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flwr_agent import presets, wire
from flwr_agent.config import DEFINING, KEYS, RunConfig, checked, resolve
from flwr_agent.errors import ConfigError, DataError, ProtocolError

KEY = "site"
"""Key of the node_config that names the file."""
PLACES = ("env.data_path", "env.url", "env.token_file", "env.digest", "model.path")
"""Keys that change what is learnt from, and are a site's own all the same."""
SECTIONS = ("env", "model", "rollout", "trainer", "worker")
PRIVACY = ("privacy.mods", "privacy.clip", "privacy.delta", "privacy.local_epsilon")
"""Keys of a run that stand in the node_config itself; there they win over the run's."""

LARGEST = 2.0**63
"""Limits are below it, as numbers of a run are; infinity would be no limit."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Site:
    """What a site decides for itself; the server can override none of it.

    Example:
        >>> Site(limits={"federation.epochs_per_round": 3}).to_own(config)
        Traceback (most recent call last):
        flwr_agent.errors.ProtocolError: this site refuses federation.epochs_per_round=5: its limit is 3
    """

    use: Mapping[str, Any] = field(default_factory=dict)
    """Key -> the site's own value: `PLACES`, and what changes the speed of its work alone."""
    limits: Mapping[str, float] = field(default_factory=dict)
    """Key -> the largest number that the site accepts."""
    only: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Key -> the words that the site accepts."""

    def to_own(self, config: RunConfig) -> RunConfig:
        """The configuration as this site runs it.

        Raises:
            ProtocolError: the run asks for what the site does not do.
        """
        flat = config.flat()
        for key, limit in self.limits.items():
            if float(flat[key]) > limit:
                raise ProtocolError(f"this site refuses {key}={flat[key]}: its limit is {limit:g}")
        for key, words in self.only.items():
            if flat[key] not in words:
                raise ProtocolError(f"this site refuses {key}={flat[key]}: it accepts {', '.join(words)}")
        return resolve(flat, self.use) if self.use else config


def read(node_config: Mapping[str, object]) -> Site:
    """The site of a node; one whose node_config names no file accepts everything.

    Raises:
        ConfigError: no such file, or a key that a site has no say in.
        DataError: the file is malformed.
    """
    if KEY not in node_config:
        return Site()
    path = Path(str(node_config[KEY])).expanduser()
    if not path.is_file():
        raise ConfigError(KEY, str(path), "the node_config names no file; write the site's YAML there")
    parts: dict[str, dict[str, Any]] = {"use": {}, "limits": {}, "only": {}}
    for dotted, (value, line) in presets.parse(path).items():
        part, _, key = dotted.partition(".")
        if part not in parts or key not in KEYS:
            raise DataError(f"{path}:{line}", dotted, f"write {', '.join(parts)}, and under them keys of a run")
        _check(part, key, value, f"{path}:{line}")
        parts[part][key] = value
    return Site(use=parts["use"], limits=parts["limits"], only={key: _words(w) for key, w in parts["only"].items()})


def privacy(node_config: Mapping[str, object]) -> dict[str, object]:
    """The settings of a node by which it protects its weights itself, under their keys of a run.

    Raises:
        ConfigError: a setting that would not be obeyed, so that weights would leave unprotected; or a wrong value.
    """
    own = {name: value for name, value in node_config.items() if name in PRIVACY}
    for name, value in node_config.items():
        if name not in own and ("." in name or name.casefold().startswith("privacy")):
            fix = "is no setting of a site, and would be without effect; keys of a run stand in the file of site=FILE"
            raise ConfigError(name, value, fix, allowed=PRIVACY)
    for name, value in own.items():
        checked(name, value)
    if "privacy.mods" in own:
        wire.mods_of(str(own["privacy.mods"]))
    return own


def _words(value: object) -> tuple[str, ...]:
    return tuple(str(word).strip() for word in (value if isinstance(value, list) else str(value).split(",")))


def _check(part: str, key: str, value: object, where: str) -> None:
    spec = KEYS[key]
    if part == "use" and not (key in PLACES or (key.partition(".")[0] in SECTIONS and key not in DEFINING)):
        raise DataError(where, key, "is the federation's to decide, not a site's; limit it, or drop the line")
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < LARGEST
    if part == "limits" and not (is_number and spec.type in (int, float)):
        raise DataError(where, key, "a limit is a number, of a key that is one")
    if part == "only" and spec.type is not str:
        raise DataError(where, key, "is no word; write it under limits")
    try:
        for own in [value] if part == "use" else _words(value) if part == "only" else ():
            checked(key, own)
    except ConfigError as error:
        raise error.at(where) from None
