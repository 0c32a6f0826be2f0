"""Clients that live in different rooms of the world."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.random import RandomState

from envs.base import Shard, Task, Variant
from envs.partition.catalog import blended_scores
from envs.partition.checks import check_count, check_number, check_tasks_per_client
from flwr_agent.errors import ConfigError

ROOMS = ("bathroom", "bedroom", "kitchen", "living")
"""The order in which rooms are drawn; it decides which rooms get one scene more when four does not divide."""


def scene_disjoint(  # noqa: PLR0913 (the form of a partition, and its knobs)
    tasks: Sequence[Task],
    client_id: int,
    num_clients: int,  # noqa: ARG001
    *,
    seed: int,
    tasks_per_client: int,
    env_div: float,
    scenes_per_client: int = 8,
) -> Shard:
    """Exactly `tasks_per_client` games, all in `scenes_per_client` scenes, with the pool's mix of task types.

    At `env_div` 0 all clients hold the same games; at 1 their scenes are independent draws. The result does not
    depend on the order of `tasks`.

    Raises:
        ConfigError: if a knob is out of range, tasks name no scene, or a client's scenes hold too few games.
    """
    check_tasks_per_client(tasks_per_client, tasks)
    check_number("env_div", env_div, 0, 1)
    scenes = np.array(sorted({_scene(task) for task in tasks}))
    check_count("scenes_per_client", scenes_per_client, 1, len(scenes), f"the environment has {len(scenes)} scenes")
    mine = _pick_scenes(scenes, blended_scores(len(scenes), client_id, env_div, seed), scenes_per_client)
    ranked = [task for task in _by_score(tasks, seed) if _scene(task) in mine]
    if len(ranked) < tasks_per_client:
        raise ConfigError(
            "partition.scenes_per_client",
            scenes_per_client,
            f"client {client_id}'s scenes hold {len(ranked)} games; raise it or lower partition.tasks_per_client",
        )
    chosen = _stratified(ranked, _quotas(tasks, ranked, tasks_per_client))
    ids = tuple(task.id for task in tasks if task.id in chosen)
    return Shard(client_id, ids, Variant("scene_disjoint", {"scenes": sorted(mine)}))


def _scene(task: Task) -> int:
    try:
        return int(task.meta["scene"])
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError(
            "partition.strategy",
            "scene_disjoint",
            "the environment's tasks have no numbered scene; use minihouse or alfworld",
        ) from error


def room(scene: int) -> str:
    """The room a scene's number stands for: 1-99 kitchens, 200-299 living rooms, 300-399 bedrooms, else bathrooms."""
    if scene < 100:
        return "kitchen"
    if scene < 300:
        return "living"
    return "bedroom" if scene < 400 else "bathroom"


def _pick_scenes(scenes: np.ndarray, scores: np.ndarray, count: int) -> set[int]:
    """A quarter of the scenes from each room, those with the smallest scores."""
    rooms = np.array([room(scene) for scene in scenes])
    picked: set[int] = set()
    for number, name in enumerate(ROOMS):
        here = np.flatnonzero(rooms == name)
        share = count // len(ROOMS) + (number < count % len(ROOMS))
        picked.update(scenes[here[np.argsort(scores[here], kind="stable")[:share]]].tolist())
    return picked


def _by_score(tasks: Sequence[Task], seed: int) -> list[Task]:
    ordered = sorted(tasks, key=lambda task: task.id)
    scores = RandomState(seed).random_sample(len(ordered))
    return [ordered[i] for i in np.argsort(scores, kind="stable")]


def _quotas(tasks: Sequence[Task], available: Sequence[Task], size: int) -> dict[str, int]:
    """Games per task type: the pool's shares by largest remainder, what a type lacks taken from the fullest type."""
    types = sorted({task.meta["category"] for task in tasks})
    share = np.array([sum(task.meta["category"] == kind for task in tasks) for kind in types]) * size / len(tasks)
    wanted = np.floor(share).astype(int)
    wanted[np.argsort(wanted - share, kind="stable")[: size - wanted.sum()]] += 1
    room_for = np.array([sum(task.meta["category"] == kind for task in available) for kind in types])
    taken = np.minimum(wanted, room_for)
    while (missing := size - int(taken.sum())) > 0:
        fullest = int(np.argmax(room_for - taken))
        taken[fullest] += min(missing, int(room_for[fullest] - taken[fullest]))
    return dict(zip(types, taken.tolist(), strict=True))


def _stratified(ranked: Sequence[Task], quotas: dict[str, int]) -> set[str]:
    left = dict(quotas)
    chosen: set[str] = set()
    for task in ranked:
        if left[task.meta["category"]]:
            left[task.meta["category"]] -= 1
            chosen.add(task.id)
    return chosen
