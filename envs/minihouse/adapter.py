"""The adapter of MiniHouse: task lists, prompts and episodes around the text engine."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Sequence

from envs.base import Task, Variant, View
from envs.minihouse import prompt
from envs.minihouse.engine import House
from envs.minihouse.episode import MAX_STEPS, Episode, Scene
from envs.minihouse.oracle import solve
from envs.minihouse.rules import Rules, rules_of
from envs.minihouse.world import generate, goal
from envs.prompts import known
from flwr_agent.errors import ConfigError

NUM_GAMES = {"train": 3600, "val": 600, "demo": 1200}
"""Games of each split; every run of six holds each task type once."""


class LocalEngine:
    """Plays generated games in this process."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._house = House(generate("none-0"))

    async def load(self, task: Task) -> Scene:
        """Build the household anew."""
        self._house = House(generate(task.id), self._rules)
        return self._scene(self._house.intro())

    async def act(self, command: str) -> Scene:
        """Step the house."""
        return self._scene(self._house.step(command))

    async def close(self) -> None:
        """Nothing is held."""

    def _scene(self, text: str) -> Scene:
        return Scene(text, self._house.admissible(), self._house.is_won)


class MiniHouse:
    """Households with ALFWorld's rules, embedded: no data, no extra, no other process.

    Example:
        >>> env = MiniHouse(style="compact")
        >>> env.tasks("val")[0].meta["category"]
        'pick_and_place_simple'
    """

    name = "minihouse"
    version = "1"

    def __init__(self, *, style: str = "paper", variant: Variant | None = None):
        self._style = known(style)
        self._rules = rules_of(variant)

    def tasks(self, split: str) -> Sequence[Task]:
        """Games of `train`, `val` or `demo`; `meta` holds `category` (task type), `scene` and `objects`."""
        if split not in NUM_GAMES:
            raise ConfigError("split", split, "minihouse has no such split", allowed=NUM_GAMES)
        return _tasks(split)

    def system_prompt(self) -> str:
        """Role and answer format."""
        return prompt.system_prompt()

    def render(self, view: View) -> str:
        """The user message of one turn."""
        return prompt.render(view, self._style)

    def parse_action(self, model_text: str) -> tuple[str, bool]:
        """The command of an answer, and whether its format held."""
        return prompt.parse_action(model_text, self._style)

    def make(self) -> Episode:
        """A fresh episode holder."""
        return Episode(LocalEngine(self._rules))

    def oracle(self, task: Task) -> list[str]:
        """Commands that solve the game."""
        return solve(generate(task.id), self._rules)

    def fingerprint(self) -> str:
        """Digest of the engine's version and of the worlds it generates."""
        sample = [repr(generate(f"{split}-{number}")) for split in NUM_GAMES for number in range(6)]
        text = "\n".join([self.name, self.version, str(MAX_STEPS), repr(self._rules), *sample])
        return hashlib.sha256(text.encode()).hexdigest()


@functools.cache
def _tasks(split: str) -> tuple[Task, ...]:
    return tuple(_task(f"{split}-{number}", split) for number in range(NUM_GAMES[split]))


def _task(name: str, split: str) -> Task:
    scene, goal_ = goal(name)
    return Task(name, split, {"category": goal_.type, "scene": scene, "objects": [goal_.object, goal_.target]})
