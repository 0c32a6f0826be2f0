"""Ranges of partition knobs; every refusal names the dotted configuration key."""

from __future__ import annotations

from collections.abc import Sized
from typing import Any

from flwr_agent.errors import ConfigError


def check_number(knob: str, value: Any, low: float, high: float) -> None:
    """Refuse a knob outside `[low, high]`, and anything that is not a number.

    Raises:
        ConfigError: naming `partition.<knob>` and the range.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise ConfigError(f"partition.{knob}", value, f"must be a number from {low:g} to {high:g}")


def check_count(knob: str, value: Any, low: int, high: int, why: str) -> None:
    """Refuse a knob that is not a whole number in `[low, high]`.

    Raises:
        ConfigError: naming `partition.<knob>`, the range and why it ends there.
    """
    if type(value) is not int or not low <= value <= high:
        raise ConfigError(f"partition.{knob}", value, f"must be a whole number from {low} to {high} ({why})")


def check_tasks_per_client(tasks_per_client: int, tasks: Sized) -> None:
    """Refuse shards larger than the pool.

    Raises:
        ConfigError: naming `partition.tasks_per_client`.
    """
    check_count("tasks_per_client", tasks_per_client, 1, len(tasks), f"the environment has {len(tasks)} training tasks")
