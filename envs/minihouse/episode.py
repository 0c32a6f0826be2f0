"""The rules of a household episode, whichever engine plays it: fifty steps, reward on a win, `help` not listed."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from envs.base import Step, Task
from envs.minihouse import prompt

MAX_STEPS = 50
"""Actions after which an episode is cut."""


class Scene(NamedTuple):
    """What an engine shows after a command."""

    text: str
    admissible: tuple[str, ...]
    is_won: bool


class Engine(Protocol):
    """Plays one game at a time."""

    async def load(self, task: Task) -> Scene:
        """Start the game of `task`."""
        ...

    async def act(self, command: str) -> Scene:
        """Apply a command; one that is not legal changes nothing."""
        ...

    async def close(self) -> None:
        """Release the engine; may be called any number of times."""
        ...


class Episode:
    """The `Env` of a household."""

    def __init__(self, engine: Engine):
        self._engine = engine
        self._task = Task(id="none", split="none")
        self._last = Step("", truncated=True)
        self._num_steps = 0

    async def reset(self, task: Task, *, seed: int) -> Step:  # noqa: ARG002  the game is the task's, not the seed's
        """Start `task`; the seed changes nothing, because a game is deterministic."""
        self._task, self._num_steps = task, 0
        scene = await self._engine.load(task)
        return self._answer(scene, instruction=prompt.instruction(scene.text))

    async def step(self, action: str) -> Step:
        """Apply one command; `Nothing happens.` when it is not legal now."""
        if self._last.done:
            return Step("", terminated=self._last.terminated, truncated=self._last.truncated, info=self._last.info)
        self._num_steps += 1
        return self._answer(await self._engine.act(action))

    async def close(self) -> None:
        """Release the engine."""
        await self._engine.close()

    def _answer(self, scene: Scene, **more: str) -> Step:
        is_cut = self._num_steps >= MAX_STEPS and not scene.is_won
        score = float(scene.is_won)
        info = {"success": scene.is_won, "task_score": score, "task_id": self._task.id, **more}
        admissible = prompt.shown(scene.admissible)
        self._last = Step(
            scene.text, score, terminated=scene.is_won, truncated=is_cut, admissible=admissible, info=info
        )
        return self._last
