"""What a rollout yields: turns in an `Episode`, episodes in a `Group`."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class StopReason(StrEnum):
    """Why an episode ended; a failed episode is a value, never an exception."""

    DONE = "done"
    """The environment ended it (won, lost, bought)."""
    MAX_TURNS = "max_turns"
    """The turn budget ran out; terminal for credit."""
    CONTEXT_FULL = "context_full"
    """Concat mode only: the next observation and its answer would not fit (see `rollout.max_prompt_tokens`)."""
    ENV_ERROR = "env_error"
    """The environment raised, also on the retry; the episode carries no training signal."""


@dataclass(slots=True)
class Turn:
    """One prompt and one answer, as token ids exactly as generated.

    Example:
        >>> Turn(prompt_ids=[1, 5, 6], response_ids=[9, 2], logprobs=[-0.1, -0.3], action="click 3", is_valid=True)
        Turn(prompt_ids=[1, 5, 6], response_ids=[9, 2], logprobs=[-0.1, -0.3], action='click 3', is_valid=True)
    """

    prompt_ids: list[int]
    """The tokens generated from, after left truncation. In concat mode only what is new since the last answer."""
    response_ids: list[int]
    """The tokens the model sampled, its end-of-turn token included."""
    logprobs: list[float]
    """Sampler log-probability of each response token at the sampling temperature."""
    action: str
    """What was executed."""
    is_valid: bool
    """Whether the answer kept the format."""


@dataclass(slots=True)
class Episode:
    """One attempt at one task."""

    task_id: str
    """The task that was attempted."""
    sample: int
    """Index of the attempt within its group."""
    turns: list[Turn] = field(default_factory=list)
    """Prompts and answers in order; none if the environment was done or failed at its reset."""
    score: float = 0.0
    """Environment-native return in [0, 1]."""
    success: bool = False
    """The environment's verdict after the last action."""
    measures: dict[str, float] = field(default_factory=dict)
    """What the environment measured beside its score, by name."""
    stop: StopReason = StopReason.MAX_TURNS
    """Why it ended; what it says of an episode in flight is that nothing else has ended it yet."""
    error: str = ""
    """The environment's error, when `stop` is ENV_ERROR."""


@dataclass(slots=True)
class Group:
    """The attempts at one task whose returns are compared with each other."""

    task_id: str
    """The task they share."""
    episodes: list[Episode]
    """In the order of their `sample`."""
