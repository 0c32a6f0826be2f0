"""Which keys a `task.toml` may hold and of which type, and which of them ask for more than is played here."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flwr_agent.errors import DataError

_NETWORK = {"network_mode": str, "allowed_hosts": list}

SCHEMA: Mapping[str, Any] = {
    "schema_version": str,
    "version": str,
    "source": str,
    "task": {"name": str, "description": str, "authors": list, "keywords": list},
    "metadata": dict,
    "agent": {"timeout_sec": float, "user": (str, int), **_NETWORK},
    "verifier": {
        "timeout_sec": float,
        "env": dict,
        "user": (str, int),
        "environment_mode": str,
        "collect": list,
        **_NETWORK,
    },
    "environment": {
        "build_timeout_sec": float,
        "docker_image": str,
        "workdir": str,
        "cpus": float,
        "memory_mb": int,
        "storage_mb": int,
        "gpus": int,
        "gpu_types": list,
        "allow_internet": bool,
        "env": dict,
        "skills_dir": str,
        "healthcheck": dict,
        "mcp_servers": list,
        **_NETWORK,
    },
    "solution": {"env": dict},
    "steps": list,
    "multi_step_reward_strategy": str,
    "artifacts": list,
}
"""Key -> type, or the keys of its table; the tables of type `dict` hold keys of the task's own."""

_REFUSED: Mapping[str, str] = {
    "steps": "tasks of several steps are not played; split it into tasks",
    "environment.gpus": "no GPU is given to a sandbox; leave it 0",
    "environment.healthcheck": "no service is started before the first command; drop it",
    "environment.mcp_servers": "the agent has a shell alone; drop it",
    "verifier.collect": "the verifier works in the agent's own folders; drop it",
}
_OF_TEXTS = ("environment.env", "verifier.env", "solution.env")


def present(file: Path) -> Path:
    """A file that a task cannot do without.

    Raises:
        DataError: it is missing.
    """
    if not file.is_file():
        raise DataError(file, "file", "is missing; every task needs it")
    return file


def text(file: Path) -> str:
    """The text of a task's file.

    Raises:
        DataError: it is missing, cannot be read, or is not UTF-8.
    """
    try:
        return present(file).read_text(encoding="utf-8")
    except OSError as error:
        raise DataError(file, "file", f"cannot be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise DataError(file, "content", "is not UTF-8; save it as UTF-8") from error


def read(file: Path) -> Mapping[str, Any]:
    """The content of a `task.toml`.

    Raises:
        DataError: it cannot be read, is not TOML, or holds an unknown key, a wrong type or what is not played.
    """
    try:
        content = tomllib.loads(text(file))
    except tomllib.TOMLDecodeError as error:
        raise DataError(file, "content", f"is not TOML ({error})") from error
    _check(file, content, SCHEMA, "")
    for key in _OF_TEXTS:
        _check_variables(file, key, _at(content, key) or {})
    if _at(content, "verifier.environment_mode") == "separate":
        raise DataError(file, "verifier.environment_mode", "only 'shared' is played")
    for key, fix in _REFUSED.items():
        if _at(content, key):
            raise DataError(file, key, fix)
    return content


def _check(file: Path, content: Mapping[str, Any], schema: Mapping[str, Any], prefix: str) -> None:
    for key, value in content.items():
        field = prefix + key
        if key not in schema:
            near = difflib.get_close_matches(key, schema, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known here: {', '.join(sorted(schema))}"
            raise DataError(file, field, f"unknown key; {hint}")
        expected = schema[key]
        if isinstance(expected, Mapping):
            _check_type(file, field, value, dict)
            _check(file, value, expected, f"{field}.")
        else:
            _check_type(file, field, value, expected)


def _check_type(file: Path, field: str, value: Any, expected: Any) -> None:
    allowed = expected if isinstance(expected, tuple) else (expected,)
    kinds = (*allowed, int) if float in allowed else allowed
    if type(value) not in kinds:
        names = " or ".join(kind.__name__ for kind in allowed)
        raise DataError(file, field, f"must be of type {names}, not {type(value).__name__}")
    if isinstance(value, int | float) and not (value >= 0):
        raise DataError(file, field, f"must not be {value}")


def _check_variables(file: Path, key: str, variables: Mapping[str, Any]) -> None:
    for name, value in variables.items():
        _check_type(file, f"{key}.{name}", value, str)
        if "${" in value:
            raise DataError(file, f"{key}.{name}", "variables of the host are not passed on; write the value")


def _at(content: Mapping[str, Any], field: str) -> Any:
    value: Any = content
    for key in field.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return value
