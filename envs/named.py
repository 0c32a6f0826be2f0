"""Other people's code by name: imports `module:name`, and says in one line what went wrong where."""

from __future__ import annotations

import importlib
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from flwr_agent.errors import AgentError, ConfigError

_ON_THE_WAY = {*sys.stdlib_module_names, "envs", "flwr_agent"}
"""Packages between our code and the named one."""


def load(key: str, name: str, target: str) -> Any:
    """The object that `target`, a `module:name`, stands for.

    Args:
        key: the configuration key that named it.
        name: its value: `target` itself, or a shorter name for it.
        target: where the object is.

    Raises:
        ConfigError: not of that form, no such module, no such object in it, or the module fails while it is imported.

    Example:
        >>> load("env.name", "tinyguess", "envs.tinyguess:TinyGuess").name
        'tinyguess'
    """
    module, _, attribute = target.partition(":")
    if not module or not attribute:
        raise ConfigError(key, name, "must be a known name or have the form module:name")
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise ConfigError(key, name, _missing(module, error.name or module)) from error
    except (Exception, SystemExit) as error:
        raise ConfigError(key, name, f"cannot be imported: {cause(error)}") from error
    if not hasattr(found, attribute):
        raise ConfigError(key, name, f"module {module} has no {attribute!r}")
    return getattr(found, attribute)


@contextmanager
def blamed(key: str, name: str, act: str) -> Iterator[None]:
    """Whatever other people's code raises inside becomes a `ConfigError` of one line; errors raised on purpose pass.

    Args:
        key: the configuration key that named the code.
        name: its value.
        act: what the code could not do, for example `cannot be made`.
    """
    try:
        yield
    except AgentError:
        raise
    except (Exception, SystemExit) as error:
        raise ConfigError(key, name, f"{act}: {cause(error)}") from error


def cause(error: BaseException) -> str:
    """An exception in one line, with the line of the named code that led to it; one raised on purpose is its text."""
    if isinstance(error, AgentError):
        return str(error)
    text = " ".join(f"{type(error).__name__}: {error}".split())
    place = (error.filename, error.lineno) if isinstance(error, SyntaxError) else _place(error)
    return f"{text} ({place[0]}:{place[1]})"


def _place(error: BaseException) -> tuple[str, int]:
    """File and line of the last call in the package that our code called; not the library that it called in turn."""
    frames = [
        (str(frame.f_globals.get("__name__")).partition(".")[0], frame.f_code.co_filename, line)
        for frame, line in traceback.walk_tb(error.__traceback__)
    ]
    called = [frame for frame in frames if frame[0] not in _ON_THE_WAY]
    ours = [frame for frame in frames if frame[0] not in sys.stdlib_module_names]
    shown = [frame for frame in called if frame[0] == called[0][0]] or ours or frames
    return shown[-1][1:]


def _missing(module: str, package: str) -> str:
    if module == package or module.startswith(f"{package}."):
        return f"module {package!r} cannot be found; check the spelling and the Python path"
    return f"needs the package {package!r}, which is not installed"
