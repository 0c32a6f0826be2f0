"""The worlds of a partition, played before anything is trained: what an oracle wins in each, and how they disagree."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from envs.base import EnvAdapter, Shard, Task, Variant, View
from envs.check import play
from envs.partition.disagreement import Disagreement, Policy, disagreement
from flwr_agent.config import RunConfig
from flwr_agent.errors import ConfigError
from flwr_agent.seeds import rng
from flwr_agent.world import to_world

MAX_WORLDS = 8
"""Worlds that are played; pairs grow with the square."""
PLAY_SEED = 0
"""Seed of the episodes in which worlds are compared."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Winnable:
    """What an oracle wins in one world.

    Example:
        >>> Winnable(num_clients=33, num_tasks=20, num_solved=20, num_in_time=5, mean_actions=17.5).share_in_time
        0.25
    """

    num_clients: int
    """Clients that live in a world of this kind."""
    num_tasks: int
    """Tasks played; 0 where the environment has no oracle for this world."""
    num_solved: int
    """Those of them that the oracle wins, however long it takes."""
    num_in_time: int
    """Those that it wins within `rollout.max_turns`."""
    mean_actions: float
    """Actions of a won episode."""

    @property
    def share_in_time(self) -> float | None:
        """Share of tasks that can be won within the turns of an episode; None without an oracle."""
        return self.num_in_time / self.num_tasks if self.num_tasks else None


def kind(variant: Variant) -> tuple[object, ...]:
    """What worlds of one kind share: an arm's worlds of one `index` differ in their seeds alone."""
    return (
        (variant.name, variant.params["index"]) if "index" in variant.params else (variant.name, repr(variant.params))
    )


def played(worlds: Sequence[Variant]) -> list[int]:
    """Positions of the worlds that stand for all: the first of each kind, at most `MAX_WORLDS`."""
    first: dict[tuple[object, ...], int] = {}
    for position, world in enumerate(worlds):
        first.setdefault(kind(world), position)
    return list(first.values())[:MAX_WORLDS]


def winnable(
    config: RunConfig, tasks: Sequence[Task], shards: Sequence[Shard], worlds: Sequence[Variant], count: int
) -> dict[str, Winnable]:
    """Position of each world of `played` -> what the oracle wins of the first `count` tasks of its first client."""
    found: dict[str, Winnable] = {}
    for position in played(worlds):
        home = next(shard for shard in shards if shard.variant == worlds[position])
        actions = _lengths(to_world(config, home), _tasks_of(home, tasks, count))
        won = [length for length in actions if length is not None]
        found[str(position)] = Winnable(
            num_clients=sum(s.variant is not None and kind(s.variant) == kind(worlds[position]) for s in shards),
            num_tasks=len(actions),
            num_solved=len(won),
            num_in_time=sum(length <= config.rollout.max_turns for length in won),
            mean_actions=sum(won) / len(won) if won else 0.0,
        )
    return found


def _tasks_of(shard: Shard, tasks: Sequence[Task], count: int) -> list[Task]:
    by_id = {task.id: task for task in tasks}
    return [by_id[task_id] for task_id in shard.task_ids[:count]]


def _lengths(adapter: EnvAdapter, tasks: Sequence[Task]) -> list[int | None]:
    """Actions until the oracle wins, None where it does not; nothing at all if it has no plan for any task."""
    plans = [adapter.oracle(task) for task in tasks]
    return [_length(adapter, task, plan) for task, plan in zip(tasks, plans, strict=True)] if any(plans) else []


def _length(adapter: EnvAdapter, task: Task, plan: Sequence[str] | None) -> int | None:
    steps = asyncio.run(play(adapter, task, plan or (), seed=PLAY_SEED))
    return len(steps) - 1 if steps[-1].info.get("success") else None


def compared(
    config: RunConfig, tasks: Sequence[Task], shards: Sequence[Shard], worlds: Sequence[Variant], count: int
) -> dict[str, Disagreement]:
    """`"i-j"` -> how often two worlds of `played` answer differently, on tasks of the first one's first client."""
    homes = {at: next(shard for shard in shards if shard.variant == worlds[at]) for at in played(worlds)}
    adapters = {at: to_world(config, home) for at, home in homes.items()}
    found: dict[str, Disagreement] = {}
    for i, j in combinations(homes, 2):
        some, policy = _tasks_of(homes[i], tasks, count), oracle_or_random(adapters[i])
        found[f"{i}-{j}"] = asyncio.run(
            disagreement(adapters[i], adapters[j], policy, some, seed=PLAY_SEED, max_turns=config.rollout.max_turns)
        )
    return found


def oracle_or_random(adapter: EnvAdapter) -> Policy:
    """The oracle's actions while it has some, then admissible ones at random.

    Raises:
        ConfigError: if the environment has neither at some step.
    """
    plans: dict[str, Sequence[str]] = {}

    def act(task: Task, view: View) -> str:
        plan = plans[task.id] if task.id in plans else plans.setdefault(task.id, adapter.oracle(task) or ())
        if view.num_steps < len(plan):
            return plan[view.num_steps]
        if not view.admissible:
            raise ConfigError(
                "env.name", adapter.name, "has neither an oracle nor admissible actions to compare worlds by"
            )
        return view.admissible[rng(PLAY_SEED, "lens", task.id, view.num_steps).integers(len(view.admissible))]

    return act
