"""What crosses the wire between a served environment and its clients: JSON objects, one a frame."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from envs.base import EnvAdapter, Step, Task, Variant, View
from flwr_agent.errors import ConfigError, DataError, EnvError

PROTOCOL = 1
MAX_BYTES = 1 << 20
"""Largest frame a server reads; a client reads sixteen times as much."""
SPLITS = ("train", "val", "demo")
"""Splits that a digest covers, where the environment has them."""
TASKS_A_PAGE = 1_000


def encode(message: Mapping[str, Any]) -> str:
    """A frame.

    Raises:
        ValueError: a number that JSON does not have, or an object it cannot hold.
    """
    try:
        return json.dumps(message, allow_nan=False)
    except TypeError as error:
        raise ValueError(str(error)) from None


def decode(frame: str | bytes) -> dict[str, Any]:
    """The message of a frame.

    Raises:
        ValueError: not a JSON object.
    """
    try:
        message = json.loads(frame)
    except RecursionError as error:
        raise ValueError("a frame is nested too deeply") from error
    if not isinstance(message, dict):
        raise ValueError("a frame must be a JSON object")  # noqa: TRY004 (it is the frame's value that is wrong)
    return message


def from_step(step: Step) -> dict[str, Any]:
    """A step as JSON."""
    return {field.name: getattr(step, field.name) for field in dataclasses.fields(step)}


def to_step(message: Mapping[str, Any]) -> Step:
    """A step from JSON.

    Raises:
        EnvError: it is not one.
    """
    try:
        admissible = message["admissible"]
        return Step(**{**message, "admissible": None if admissible is None else tuple(admissible)})
    except (KeyError, TypeError) as error:
        raise EnvError(f"the server's answer is not a step: {error}") from error


def from_view(view: View) -> dict[str, Any]:
    """A view as JSON."""
    return {field.name: getattr(view, field.name) for field in dataclasses.fields(view)}


def to_view(message: Mapping[str, Any]) -> View:
    """A view from JSON."""
    admissible = message["admissible"]
    history = tuple((observation, action) for observation, action in message["history"])
    return View(**{**message, "admissible": None if admissible is None else tuple(admissible), "history": history})


def to_variant(message: Mapping[str, Any] | None) -> Variant | None:
    """A variant from JSON."""
    return None if message is None else Variant(message["name"], message["params"])


def from_variant(variant: Variant | None) -> dict[str, Any] | None:
    """A variant as JSON."""
    return None if variant is None else {"name": variant.name, "params": dict(variant.params)}


def splits_of(adapter: EnvAdapter) -> dict[str, Sequence[Task]]:
    """The task lists of those of `SPLITS` that an environment has.

    Raises:
        DataError: a data file is malformed.
        ConfigError: it has no task in any of them.
        ValueError, LookupError: it refuses every split; its first refusal.
    """
    found: dict[str, Sequence[Task]] = {}
    refusals: list[ValueError | LookupError] = []
    for split in SPLITS:
        try:
            found[split] = adapter.tasks(split)
        except DataError:
            raise
        except (ValueError, LookupError) as error:
            refusals.append(error)
    if not any(found.values()):
        raise refusals[0] if refusals else ConfigError("env.name", adapter.name, f"has no task in {', '.join(SPLITS)}")
    return found


def digest_of(adapter: EnvAdapter) -> str:
    """Digest of data, engine, reward and task lists, whatever the prompt style: equal worlds have equal digests."""
    tasks = {split: [[task.id, dict(task.meta)] for task in tasks] for split, tasks in splits_of(adapter).items()}
    return _sha256([PROTOCOL, adapter.name, adapter.version, adapter.fingerprint(), tasks])


def world_of(adapter: EnvAdapter, style: str, variant: Variant | None) -> str:
    """Name of one world in one prompt style: a digest that also says what it was asked for as."""
    return _sha256([digest_of(adapter), style, from_variant(variant)])


def _sha256(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, allow_nan=False).encode()).hexdigest()
