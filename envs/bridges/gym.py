"""Gymnasium's environments as ours, and ours as Gymnasium's; needs the package `gymnasium`."""

from __future__ import annotations

import asyncio
import json
import string
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from envs.base import EnvAdapter, Step, Task
from envs.plain import PlainAdapter
from flwr_agent.errors import ConfigError, EnvError
from flwr_agent.seeds import seed_for

MAX_LENGTH = 1 << 16
"""Characters of a text that `AnyText` may sample or is said to hold."""


class AnyText(spaces.Text):
    """Texts of any characters; Gymnasium's own space knows only those it is given."""

    def __init__(self) -> None:
        super().__init__(MAX_LENGTH, min_length=0, charset=string.printable)

    def contains(self, x: Any) -> bool:
        """Whether `x` is a text."""
        return isinstance(x, str)


class ToGymnasium(gymnasium.Env[str, str]):
    """One adapter's tasks of one split; each reset begins one of them."""

    def __init__(self, adapter: EnvAdapter, split: str):
        self.action_space, self.observation_space = AnyText(), AnyText()
        self._tasks = adapter.tasks(split)
        self._by_id = {task.id: task for task in self._tasks}
        self._env, self._runner, self._is_closed = adapter.make(), asyncio.Runner(), False

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Begin the task that `options={"task_id": ...}` names, else one that the seed draws.

        Raises:
            ConfigError: there is no such task.
        """
        super().reset(seed=seed)
        task = self._chosen((options or {}).get("task_id"))
        text, _, _, _, info = self._answer(self._env.reset(task, seed=seed_for("world", task.id)))
        return text, info

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Apply an action; `info` also lists the admissible ones."""
        return self._answer(self._env.step(action))

    def close(self) -> None:
        """Close the episode; may be called any number of times."""
        if not self._is_closed:
            self._runner.run(self._env.close())
            self._runner.close()
            self._is_closed = True

    def _chosen(self, task_id: str | None) -> Task:
        if task_id is None:
            return self._tasks[int(self.np_random.integers(len(self._tasks)))]
        if task_id not in self._by_id:
            raise ConfigError("task_id", task_id, "no such task in this split")
        return self._by_id[task_id]

    def _answer(self, call: Any) -> tuple[str, float, bool, bool, dict[str, Any]]:
        step: Step = self._runner.run(call)
        info = {**step.info, "admissible": step.admissible}
        return step.text, step.reward, step.terminated, step.truncated, info


def to_gymnasium(adapter: EnvAdapter, *, split: str = "train") -> ToGymnasium:
    """A Gymnasium environment of texts that plays the tasks of a split.

    Example:
        >>> from envs.tinyguess import TinyGuess
        >>> to_gymnasium(TinyGuess()).reset(seed=0)[0]
        'no guess yet'
    """
    return ToGymnasium(adapter, split)


def from_gymnasium(
    env_id: str,
    *,
    splits: Mapping[str, int],
    rewards: tuple[float, float] = (0.0, 1.0),
    settings: Mapping[str, Any] | None = None,
    style: str = "paper",
) -> PlainAdapter:
    """A registered Gymnasium environment as an adapter; its seeds are the tasks.

    Observations are shown as text (arrays as JSON lists), actions are texts, or the numbers of a discrete space.

    Args:
        env_id: id in Gymnasium's registry, `module:id` to import first.
        splits: number of tasks by split.
        rewards: what a step pays at least and at most; it is mapped to [0, 1].
        settings: keyword arguments of the environment.
        style: prompt style.

    Raises:
        ConfigError: no such environment, or one whose actions are neither texts nor numbers.
    """
    given = {"env_id": env_id, "splits": dict(splits), "rewards": list(rewards), "settings": dict(settings or {})}
    return PlainAdapter(GymnasiumWorld, env_id, given, style=style, variant=None)


class GymnasiumWorld:
    """A Gymnasium environment as a plain class."""

    version = gymnasium.__version__

    def __init__(
        self, *, env_id: str, splits: Mapping[str, int], rewards: Sequence[float], settings: Mapping[str, Any]
    ):
        try:
            self._env = gymnasium.make(env_id, **settings)
        except (gymnasium.error.Error, ModuleNotFoundError) as error:
            raise ConfigError("env_id", env_id, f"Gymnasium cannot make it: {error}") from None
        actions = self._env.action_space
        if isinstance(actions, spaces.Discrete):
            first = int(actions.start)
            self._numbers = tuple(str(number) for number in range(first, first + int(actions.n)))
        elif isinstance(actions, spaces.Text):
            self._numbers = None
        else:
            raise ConfigError("env_id", env_id, f"its actions are {actions}; only texts and Discrete are played")
        self._splits, self._rewards = splits, rewards

    def tasks(self, split: str) -> Sequence[Task]:
        """As many seeds as were asked for."""
        if split not in self._splits:
            raise ConfigError("split", split, "not among the splits given", allowed=self._splits)
        return [Task(f"{split}-{number}", split, {"category": "gymnasium"}) for number in range(self._splits[split])]

    def reset(self, task: Task, seed: int) -> Step:
        """Seed the environment by the task."""
        observation, _ = self._env.reset(seed=seed_for(task.id, seed) % 2**32)
        return Step(_to_text(observation), admissible=self._numbers)

    def step(self, action: str) -> Step:
        """Apply an action; one that is not in the space changes nothing.

        Raises:
            EnvError: the reward is outside the range that was given.
        """
        meant = self._meant(action)
        if meant is None:
            return Step("not an action", admissible=self._numbers)
        observation, paid, terminated, truncated, _ = self._env.step(meant)
        low, high = self._rewards
        reward = (float(paid) - low) / (high - low)
        if not 0.0 <= reward <= 1.0:
            raise EnvError(f"reward {paid} is outside rewards=({low}, {high})")
        admissible = None if terminated or truncated else self._numbers
        return Step(_to_text(observation), reward, bool(terminated), bool(truncated), admissible)

    def close(self) -> None:
        """Close the environment."""
        self._env.close()

    def _meant(self, action: str) -> Any:
        if self._numbers is None:
            return action
        return int(action) if action.strip() in self._numbers else None


def _to_text(observation: Any) -> str:
    if isinstance(observation, str):
        return observation
    return json.dumps(observation, default=lambda value: np.asarray(value).tolist())
