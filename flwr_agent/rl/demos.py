"""Demonstrations of a hasty expert: what the tiny policy is warm-started on.

The expert knows the solution and grows impatient: the further it is, the likelier it skips the next step of its plan.
A model that imitates it does the task now and then, and its habit, not chance, is what it has to unlearn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from envs.base import EnvAdapter, Task, View
from flwr_agent.seeds import rng


@dataclass(frozen=True, slots=True)
class Demo:
    """One shown turn: the rendered prompt and the answer."""

    prompt: str
    """The user message, without the chat template."""
    answer: str
    """What the expert says."""


def demonstrate(adapter: EnvAdapter, tasks: Sequence[Task], *, haste: float, history: int, seed: int) -> list[Demo]:
    """Turns of one episode per task by the hasty expert; the same for the same arguments."""
    return asyncio.run(_demonstrate(adapter, tasks, haste, history, seed))


async def _demonstrate(adapter: EnvAdapter, tasks: Sequence[Task], haste: float, history: int, seed: int) -> list[Demo]:
    return [demo for task in tasks for demo in await _episode(adapter, task, haste, history, seed)]


async def _episode(adapter: EnvAdapter, task: Task, haste: float, history: int, seed: int) -> list[Demo]:
    plan = hurried(list(adapter.oracle(task) or ()), haste, rng(seed, "demo", task.id))
    env, demos, past = adapter.make(), [], []
    step = await env.reset(task, seed=seed)
    instruction = str(step.info.get("instruction", ""))
    for action in plan:
        shown = tuple(past[-history:]) if history else ()
        prompt = adapter.render(View(instruction, step.text, step.admissible, shown, len(demos)))
        demos.append(Demo(prompt, action))
        past.append((step.text, action))
        step = await env.step(action)
        if step.done:
            break
    await env.close()
    return demos


def hurried(plan: Sequence[str], haste: float, draw: np.random.Generator) -> list[str]:
    """The plan with steps left out: step i of n is skipped with probability `haste * i / n`, the last one never."""
    n = len(plan)
    return [action for i, action in enumerate(plan) if i == n - 1 or draw.random() >= haste * i / n]
