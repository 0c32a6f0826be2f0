"""WebShop as a load: prompts of a chosen length, and actions that are legal whatever the model says."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

from envs.base import Env, Step, Task, Variant, View
from envs.webshop import WebShop
from flwr_agent.seeds import rng

WORDS = ("red", "blue", "small", "large", "shirt", "lamp", "table", "green", "price", "light", "heavy", "short")
PADDING = " ".join(WORDS[i] for i in rng("padding").integers(0, len(WORDS), 100_000))
CHARS_PER_TOKEN = 6
"""More than a token has, so that the padded prompt is never too short."""
ENDS = "buy"
"""What an action that ends the episode contains; it is never drawn, so that every episode runs all its turns."""


class PaddedShop:
    """WebShop in the published prompt style, each prompt behind enough seeded words to reach 1,200 tokens.

    The rollout cuts prompts at the left to `rollout.max_prompt_tokens`, so all of them have exactly that length.
    """

    name = "padded-webshop"
    version = "1"
    num_tokens = 1200

    def __init__(self, *, style: str = "paper", variant: Variant | None = None):
        self.shop = WebShop(style=style, variant=variant)

    def tasks(self, split: str) -> Sequence[Task]:
        """WebShop's."""
        return self.shop.tasks(split)

    def system_prompt(self) -> str:
        """WebShop's."""
        return self.shop.system_prompt()

    def render(self, view: View) -> str:
        """Words that depend on what is shown, as a longer history would, and WebShop's own message."""
        message = self.shop.render(view)
        start = zlib.crc32(message.encode()) % (len(PADDING) - CHARS_PER_TOKEN * self.num_tokens)
        return PADDING[start : start + max(0, CHARS_PER_TOKEN * self.num_tokens - len(message))] + message

    def parse_action(self, model_text: str) -> tuple[str, bool]:
        """Whatever was said, as the seed of a legal action."""
        return model_text, True

    def make(self) -> Env:
        """An episode that plays legal actions."""
        return LegalEnv(self.shop.make())

    def oracle(self, task: Task) -> Sequence[str] | None:
        """WebShop's."""
        return self.shop.oracle(task)

    def fingerprint(self) -> str:
        """WebShop's."""
        return self.shop.fingerprint()


class LongShop(PaddedShop):
    """The same at 4,096 tokens a prompt."""

    num_tokens = 4096


class LegalEnv:
    """One episode in which a said text stands for a legal action, drawn by task, turn and text."""

    def __init__(self, env: Any):
        self._env, self._turn, self._task_id = env, 0, ""
        self._legal: list[str] = []

    async def reset(self, task: Task, *, seed: int) -> Step:
        """Start the task."""
        self._turn, self._task_id = 0, task.id
        return self._see(await self._env.reset(task, seed=seed))

    async def step(self, action: str) -> Step:
        """Play the legal action that `action` stands for."""
        self._turn += 1
        drawn = zlib.crc32(f"{self._task_id} {self._turn} {action}".encode())
        return self._see(await self._env.step(self._legal[drawn % len(self._legal)]))

    async def close(self) -> None:
        """Close the episode."""
        await self._env.close()

    def _see(self, step: Step) -> Step:
        self._legal = [action for action in step.admissible or () if ENDS not in action.lower()] or ["search[shirt]"]
        return step
