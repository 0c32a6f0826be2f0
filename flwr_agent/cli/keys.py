"""Every configuration key, for people: a table, a Markdown page, and the block that Flower needs in pyproject.toml."""

from __future__ import annotations

import dataclasses
from typing import Any

from flwr_agent.config import KEYS, type_of


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Key:
    """One key in words.

    Example:
        >>> next(k for k in listed() if k.name == "federation.rounds").default
        '8'
    """

    name: str
    type: str
    default: str
    range: str
    """Allowed words or bounds, empty if anything of the type goes."""
    doc: str


def listed() -> list[Key]:
    """All keys in the order of the tree."""
    return [
        Key(
            name=name,
            type=type_of(spec).__name__,
            default=_shown(spec.default),
            range=_range(spec),
            doc=spec.metadata["doc"],
        )
        for name, spec in KEYS.items()
    ]


def to_toml() -> str:
    """The block `[tool.flwr.app.config]`: Flower only lets a run override keys that stand there; `""` is unset."""
    return "\n".join(["[tool.flwr.app.config]", 'preset = ""', *(f'{name} = ""' for name in KEYS)]) + "\n"


def to_markdown() -> str:
    """The page docs/configuration.md."""
    lines = [
        "# Configuration",
        "",
        "Precedence: defaults < preset (`conf/NAME.yaml`, or a YAML file of yours) < explicit overrides.",
        "",
        "```sh",
        "python -m flwr_agent run --preset tinyguess federation.rounds=5",
        "flwr run . --run-config 'preset=\"tinyguess\" federation.rounds=5'",
        "```",
        "",
        'An unset key is `""` for Flower. This page is written by `python -m flwr_agent config --markdown`.',
    ]
    section = None
    for key in listed():
        group = key.name.rpartition(".")[0] or "run"
        if group != section:
            section = group
            lines += ["", f"## {group}", "", "| key | type | default | allowed | meaning |", "|---|---|---|---|---|"]
        lines.append(f"| `{key.name}` | {key.type} | `{key.default}` | {key.range or 'any'} | {key.doc} |")
    return "\n".join(lines) + "\n"


def _shown(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _range(spec: dataclasses.Field[Any]) -> str:
    if spec.metadata["allowed"]:
        return ", ".join(spec.metadata["allowed"])
    bounds = {">=": spec.metadata["low"], "<=": spec.metadata["high"]}
    return ", ".join(f"{sign} {bound:g}" for sign, bound in bounds.items() if bound is not None)
