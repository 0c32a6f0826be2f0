"""What an agent acts in: `Task`, `Step`, `View`, `Env`, `EnvAdapter`, and the variant a client's world may have.

Environments speak text. They never see a token, a model or a client id; the rollout never sees a page or a game.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable


@dataclass(frozen=True, slots=True)
class Task:
    """One thing to do, with a stable id.

    Example:
        >>> Task(id="guess-17", split="train", meta={"category": "high"})
        Task(id='guess-17', split='train', meta={'category': 'high'})
    """

    id: str
    """Stable across processes, load order and catalogue filters."""
    split: str
    """`train`, `val`, `demo`, or a split of the environment's own."""
    meta: Mapping[str, Any] = field(default_factory=dict)
    """What partitioners need: `category` always; `scene`, `asin`, … where they exist. JSON-serialisable."""


@dataclass(frozen=True, slots=True)
class Step:
    """What the environment answers to a reset or an action."""

    text: str
    """Observation as the policy sees it (formatting already applied)."""
    reward: float = 0.0
    """Environment-native reward in [0, 1]; scaling and penalties belong to the trainer."""
    terminated: bool = False
    """The task ended by the environment's own rules (won, lost, bought)."""
    truncated: bool = False
    """The environment itself cut the episode (its own step limit)."""
    admissible: tuple[str, ...] | None = None
    """Actions that would do something now, or None when the environment cannot list them."""
    info: Mapping[str, Any] = field(default_factory=dict)
    """`success` (bool), `task_score` (0..1), `task_id`; at reset also `instruction`, the task in words.

    `measures`, if there is one, is a dict of numbers that an experiment watches; means over episodes are logged.
    """

    @property
    def done(self) -> bool:
        """Whether no further action is possible."""
        return self.terminated or self.truncated


@dataclass(frozen=True, slots=True)
class View:
    """All that a prompt of one turn may be made from (windowed: the last k pairs only)."""

    instruction: str
    """The task in words."""
    observation: str
    """Current observation."""
    admissible: tuple[str, ...] | None
    """Actions that may be listed to the policy."""
    history: tuple[tuple[str, str], ...] = ()
    """Last k (observation before the action, parsed action) pairs, oldest first."""
    num_steps: int = 0
    """Actions taken so far in the episode."""


@dataclass(frozen=True, slots=True)
class Variant:
    """How one client's world differs from the standard one (hidden from the policy).

    Example:
        >>> Variant("bm25_reweight", {"k1": 1.2, "b": 0.0}).name
        'bm25_reweight'
    """

    name: str
    params: Mapping[str, Any] = field(default_factory=dict)
    """JSON-serialisable; enough for any process to rebuild the world."""


@dataclass(frozen=True, slots=True)
class Shard:
    """A client's part of the federation: which tasks it holds and which world it lives in."""

    client_id: int
    task_ids: tuple[str, ...]
    variant: Variant | None = None


class Env(Protocol):
    """One episode at a time; single owner; `close` may be called any number of times."""

    async def reset(self, task: Task, *, seed: int) -> Step:
        """Start `task`; equal `(task, seed)` give equal episodes for equal actions."""
        ...

    async def step(self, action: str) -> Step:
        """Apply one action; an inapplicable action changes nothing and never raises."""
        ...

    async def close(self) -> None:
        """Release what the episode held."""
        ...


@runtime_checkable
class EnvAdapter(Protocol):
    """One environment, configured for one client; owns shared immutable data, makes light `Env`s.

    Built by `envs.registry.create(name, settings, style=..., variant=...)`: the constructor takes the environment's
    own settings as keyword arguments, plus `style` (a prompt style) and `variant` (or None).
    """

    name: str
    version: str

    def tasks(self, split: str) -> Sequence[Task]:
        """All tasks of a split in canonical order."""
        ...

    def system_prompt(self) -> str:
        """System message of concat mode; windowed mode has none."""
        ...

    def render(self, view: View) -> str:
        """The user message of one windowed turn, in the adapter's prompt style."""
        ...

    def parse_action(self, model_text: str) -> tuple[str, bool]:
        """`(action, is_valid)`: the action is executed either way; `is_valid` is a verdict on the format only."""
        ...

    def make(self) -> Env:
        """A fresh episode holder."""
        ...

    def oracle(self, task: Task) -> Sequence[str] | None:
        """Actions that solve `task` from its reset, or None if no oracle exists."""
        ...

    def fingerprint(self) -> str:
        """Digest of data, engine version, reward mode and variant."""
        ...
