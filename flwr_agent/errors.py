"""Every error the package raises on purpose, one root, each with a next step in its message.

To add one: subclass `AgentError` and the standard exception it refines, and say in its docstring who raises it.
"""

from __future__ import annotations

import difflib
import errno
from collections.abc import Iterable
from typing import ClassVar


class AgentError(Exception):
    """Root of all errors that are raised on purpose; its text is fit to be shown to a user as it is."""

    exit_code: ClassVar[int] = 1
    """Of a command that ends with it: 2 if what the command was given is wrong or damaged, 1 if something failed."""


class ConfigError(AgentError, ValueError):
    """A key, file or knob is wrong; raised before any client works.

    Example:
        >>> raise ConfigError("algorithm.group_size", 0, "an integer >= 2")
        Traceback (most recent call last):
        flwr_agent.errors.ConfigError: algorithm.group_size=0: an integer >= 2
    """

    exit_code = 2

    def __init__(self, key: str, value: object, fix: str, *, allowed: Iterable[str] = ()):
        self.key = key
        names = sorted(str(a) for a in allowed)
        near = difflib.get_close_matches(str(value), names, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        choice = f" (allowed: {', '.join(names)})" if names else ""
        value = value[:297] + "..." if isinstance(value, str) and len(value) > 300 else value
        shown = value if isinstance(value, int | float | bool) else repr(value)
        given = key if key.startswith("--") and value == "" else f"{key}={shown}"
        super().__init__(f"{given}: {fix}{choice}{hint}")

    def at(self, source: str) -> ConfigError:
        """This error with the place its value was written (`file:line`) in front."""
        self.args = (f"{source}: {self.args[0]}",)
        return self


class DataError(AgentError, ValueError):
    """A data file is malformed; names the file and the field."""

    exit_code = 2

    def __init__(self, path: object, field: str, fix: str):
        self.path, self.field = str(path), field
        super().__init__(f"{path}: {field}: {fix}")


class EnvError(AgentError, RuntimeError):
    """An environment failed while an episode ran; the episode is recorded as failed, the run goes on."""


class ProtocolError(AgentError, RuntimeError):
    """A message does not fit: other version, other code, other keys or shapes."""

    exit_code = 2


class QuorumError(AgentError, RuntimeError):
    """Too few clients answered a round; the run stops and can be resumed."""


class BudgetError(AgentError, RuntimeError):
    """The next round would exceed the privacy budget; the model of the last one stays."""


FULL = (errno.ENOSPC, errno.EDQUOT)
"""Numbers of an OSError: a full disk, or a user's full share of it."""


class FullError(AgentError, RuntimeError):
    """The disk is full; what the last whole round has learned stays, and the run can be resumed."""


class ResumeError(AgentError, RuntimeError):
    """The output folder holds something that this run must not continue."""

    exit_code = 2


class WorkerError(AgentError, RuntimeError):
    """The worker process died or refused an illegal request."""
