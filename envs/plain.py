"""Wraps a plain synchronous class as an environment, so that a third party writes `tasks`, `reset` and `step` only.

The class is constructed once for its task lists and once per live episode. It offers

- `tasks(split)`: an iterable of `Task`s;
- `reset(task, seed)`: the first observation, a `Step` or a text;
- `step(action)`: a `Step`, or Gymnasium's `(text, reward, terminated, truncated, info)`;

and, where it wants, any of `system_prompt`, `render`, `parse_action`, `oracle`, `close` and `version`.
"""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from envs import named
from envs.base import Step, Task, Variant, View
from envs.prompts import answer_format, compact, known, past, plain_answer, project
from envs.variant import refuse
from flwr_agent.errors import ConfigError

_REQUIRED = ("tasks", "reset", "step")


def is_plain(cls: type[Any]) -> bool:
    """Whether `cls` is a plain class to be wrapped rather than an adapter."""
    return not hasattr(cls, "make") and all(callable(getattr(cls, method, None)) for method in _REQUIRED)


class PlainEnv:
    """One episode of a plain class; its methods run in a thread, so that a slow one holds up nobody else."""

    def __init__(self, world: Any):
        self._world = world
        self._task = Task(id="none", split="none")
        self._is_done = True

    async def reset(self, task: Task, *, seed: int) -> Step:
        """Start `task`; the instruction defaults to the first observation."""
        self._task = task
        step = _to_step(await asyncio.to_thread(self._world.reset, task, seed), task)
        self._is_done = step.done
        return dataclasses.replace(step, info={"instruction": step.text, **step.info})

    async def step(self, action: str) -> Step:
        """Apply one action; an episode that is over stays over."""
        if self._is_done:
            return _to_step(("", 0.0, True, False, {}), self._task)
        step = _to_step(await asyncio.to_thread(self._world.step, action), self._task)
        self._is_done = step.done
        return step

    async def close(self) -> None:
        """Close the plain object, if it can be closed."""
        if hasattr(self._world, "close"):
            await asyncio.to_thread(self._world.close)


class PlainAdapter:
    """The `EnvAdapter` of a plain class: what the class does not say is filled in with the generic prompts."""

    def __init__(self, cls: type[Any], name: str, settings: Mapping[str, Any], *, style: str, variant: Variant | None):
        refuse(name, variant)
        self.name = name
        self.version = str(getattr(cls, "version", "0"))
        self._style = known(style)
        self._cls = cls
        self._settings = dict(settings)
        self._world = cls(**settings)

    def tasks(self, split: str) -> Sequence[Task]:
        """All tasks of a split, in the order the class gives them.

        Raises:
            ConfigError: the class fails, or gives something else than tasks.
        """
        with named.blamed("env.name", self.name, f"tasks({split!r}) fails"):
            listed = tuple(self._world.tasks(split))
        for task in listed:
            if not (isinstance(task, Task) and isinstance(task.id, str) and isinstance(task.meta, Mapping)):
                fix = f"tasks({split!r}) gives {task!r}; it must give envs.base.Task, its id a text and its meta a mapping"
                raise ConfigError("env.name", self.name, fix)
        return listed

    def system_prompt(self) -> str:
        """The class's own system message, else the answer format."""
        return self._world.system_prompt() if hasattr(self._world, "system_prompt") else answer_format()

    def render(self, view: View) -> str:
        """The class's own prompt, else the generic one of the chosen style."""
        if hasattr(self._world, "render"):
            return self._world.render(view)
        if self._style == "compact":
            return compact(view)
        choice = f"Admissible actions: [{', '.join(map(repr, view.admissible))}]" if view.admissible else ""
        parts = [f"Your task: {view.instruction}", past(view), f"Current observation: {view.observation}", choice]
        return "\n" + "\n".join(filter(None, parts)) + f"\n\n{answer_format()}\n"

    def parse_action(self, model_text: str) -> tuple[str, bool]:
        """The class's own reading of an answer, else the style's."""
        if hasattr(self._world, "parse_action"):
            return self._world.parse_action(model_text)
        if self._style == "compact":
            action = plain_answer(model_text)
            return action, bool(action)
        return project(model_text, tail=30)

    def make(self) -> PlainEnv:
        """A fresh object of the class, driven from a thread."""
        return PlainEnv(self._cls(**self._settings))

    def oracle(self, task: Task) -> Sequence[str] | None:
        """The class's own solution, if it has one."""
        return self._world.oracle(task) if hasattr(self._world, "oracle") else None

    def fingerprint(self) -> str:
        """Digest of the class, its version and its settings."""
        text = json.dumps([self.name, self.version, self._settings], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()


def _to_step(answer: Any, task: Task) -> Step:
    if isinstance(answer, str):
        answer = Step(answer)
    elif isinstance(answer, tuple) and len(answer) == 5:
        text, reward, terminated, truncated, info = answer
        answer = Step(text, float(reward), bool(terminated), bool(truncated), info=info)
    elif not isinstance(answer, Step):
        raise TypeError(f"reset and step must give a Step, a text or Gymnasium's five values, not {answer!r}")
    if not isinstance(answer.info, Mapping):
        raise TypeError(f"info must be a mapping, not {answer.info!r}")
    if not isinstance(answer.admissible, Sequence | None):
        raise TypeError(f"admissible must be a tuple of texts or None, not {answer.admissible!r}")
    score = {"success": answer.reward >= 1.0, "task_score": float(answer.reward), "task_id": task.id}
    return dataclasses.replace(answer, info={**score, **answer.info})
