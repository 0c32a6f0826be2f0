"""What success means on the held-out tasks: a random policy and an oracle play them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from envs.base import EnvAdapter, Step, Task
from flwr_agent.config import RunConfig
from flwr_agent.seeds import rng, seed_for
from flwr_agent.world import to_adapter

Policy = Callable[[Step, int], str]


def random_policy(config: RunConfig) -> list[float]:
    """Success of a uniform choice among the admissible actions, per task."""
    draw = rng("random policy")
    return _play(config, lambda _task: lambda step, _turn: str(draw.choice(step.admissible or [""])))


def oracle(config: RunConfig) -> list[float]:
    """Success of the environment's own solution, per task."""
    adapter = to_adapter(config)
    plans = {task.id: list(adapter.oracle(task) or ()) for task in adapter.tasks("val")[: config.evaluation.tasks]}
    return _play(config, lambda task: lambda _step, turn: (plans[task.id] + [""] * config.rollout.max_turns)[turn])


def _play(config: RunConfig, policy_of: Callable[[Task], Policy]) -> list[float]:
    adapter = to_adapter(config)
    tasks = adapter.tasks("val")[: config.evaluation.tasks]
    return [asyncio.run(_episode(adapter, task, policy_of(task), config.rollout.max_turns)) for task in tasks]


async def _episode(adapter: EnvAdapter, task: Task, policy: Policy, max_turns: int) -> float:
    env = adapter.make()
    step = await env.reset(task, seed=seed_for("world", task.id))
    for turn in range(max_turns):
        if step.done:
            break
        step = await env.step(policy(step, turn))
    await env.close()
    return float(step.info["success"])
