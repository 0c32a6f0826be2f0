"""Settings of a third party's own code: one mapping inside one configuration key.

Flower carries scalars, so the key's value is the text of a JSON object, or `none`. People write
`env.settings.start=5`, nested keys in a preset, or `env.settings='{start: 5}'`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from flwr_agent.errors import ConfigError

KEYS = ("env.settings", "partition.settings")
NONE = "none"


def to_text(key: str, value: object) -> str:
    """The canonical text of a mapping, or of the text of one.

    Raises:
        ConfigError: not a JSON object with names as keys, or `none`.

    Example:
        >>> to_text("env.settings", {"start": 5, "colours": ["red"]})
        '{"colours": ["red"], "start": 5}'
    """
    if value == NONE:
        return NONE
    try:
        found = json.loads(value) if isinstance(value, str) else value
        text = json.dumps(found, sort_keys=True, allow_nan=False)
    except (ValueError, TypeError) as error:
        raise ConfigError(key, value, f'must be a mapping such as {{"start": 5}} ({error})') from None
    if not isinstance(found, Mapping) or not all(isinstance(name, str) and name.isidentifier() for name in found):
        raise ConfigError(key, value, 'must be a mapping of names to values, such as {"start": 5}')
    return text if found else NONE


def to_mapping(text: str) -> dict[str, Any]:
    """The mapping of a canonical text."""
    return {} if text == NONE else json.loads(text)


def expanded(values: Mapping[str, Any], parse: Callable[[str], Any]) -> dict[str, Any]:
    """`values` with each key of `KEYS` as one key an entry, `env.settings.start`; `parse` reads the text of a mapping."""
    return {name: value for key, given in values.items() for name, value in _entries(key, given, parse)}


def laid(lower: Mapping[str, Any], upper: Mapping[str, Any]) -> dict[str, Any]:
    """`upper` over `lower`, both expanded, as folded keys; `none` above drops the entries below.

    Example:
        >>> laid({"env.settings.start": 5, "env.settings.step": 1}, {"env.settings.start": 7})
        {'env.settings': '{"start": 7, "step": 1}'}
    """
    kept = {key: value for key, value in lower.items() if upper.get(_home(key) or "") != NONE}
    return folded({**kept, **upper})


def folded(values: Mapping[str, Any]) -> dict[str, Any]:
    """The way back from `expanded`: entries of one key of `KEYS` become its canonical text."""
    rest = {key: value for key, value in values.items() if _home(key) is None}
    mappings: dict[str, dict[str, Any]] = {}
    for key, value in values.items():
        if (home := _home(key)) is not None:
            mappings.setdefault(home, {})[key.removeprefix(f"{home}.")] = value
    return rest | {key: to_text(key, mapping) for key, mapping in mappings.items()}


def _home(key: str) -> str | None:
    return next((home for home in KEYS if key.startswith(f"{home}.")), None)


def _entries(key: str, value: Any, parse: Callable[[str], Any]) -> Iterator[tuple[str, Any]]:
    if key not in KEYS or value in ("", NONE):
        yield key, value
        return
    found = parse(value) if isinstance(value, str) else value
    for name, entry in json.loads(to_text(key, found)).items():
        yield f"{key}.{name}", entry
