"""Demonstrations: seeded, of `demo` tasks nobody else sees, in the prompts that the policy will meet."""

import numpy as np
import pytest
from fakes import config
from hypothesis import given
from hypothesis import strategies as st
from talkers import Countdown, Scripted, chat

from envs.base import Task
from envs.registry import create
from flwr_agent.rl.demos import demonstrate, hurried
from flwr_agent.rl.rollout import Attempt, Rollout
from flwr_agent.seeds import rng

PLANS = st.lists(st.text("abc", min_size=1, max_size=2), max_size=6)


@given(PLANS, st.floats(0, 1), st.integers(0, 99))
def test_a_hurried_plan_leaves_steps_out_and_ends_as_the_plan_does(plan, haste, seed):
    left = iter(plan)
    found = hurried(plan, haste, rng(seed))
    assert all(any(action == step for step in left) for action in found)
    assert found[-1:] == plan[-1:]
    assert found[:1] == plan[:1]
    assert hurried(plan, 0.0, rng(seed)) == plan


def test_steps_are_skipped_the_likelier_the_later():
    plan = ["a", "b", "c", "d", "e"]
    draw = rng("haste")
    kept = np.mean(
        [[step in found for step in plan] for found in (hurried(plan, 0.8, draw) for _ in range(4000))], axis=0
    )
    assert kept == pytest.approx([1, 1 - 0.16, 1 - 0.32, 1 - 0.48, 1], abs=0.03)


def test_demonstrations_are_those_of_their_arguments():
    world = create("webshop", {}, style="compact")
    tasks = world.tasks("demo")[:20]
    first = demonstrate(world, tasks, haste=0.7, history=2, seed=1)
    assert demonstrate(world, tasks, haste=0.7, history=2, seed=1) == first
    assert demonstrate(world, tasks[::-1], haste=0.7, history=2, seed=1) != first
    by_task = [demonstrate(world, [task], haste=0.7, history=2, seed=1) for task in tasks]
    assert [demo for demos in by_task for demo in demos] == first
    assert demonstrate(world, tasks, haste=0.7, history=2, seed=2) != first


@pytest.mark.parametrize("history", [0, 2])
def test_a_demonstration_shows_the_prompts_of_a_rollout(history):
    world = create("webshop", {}, style="compact")
    for task in world.tasks("demo")[:4]:
        demos = demonstrate(world, [task], haste=0.0, history=history, seed=1)
        answers = iter([demo.answer for demo in demos])
        run = config(rollout__history=history, rollout__max_prompt_tokens=9999, rollout__max_new_tokens=999)
        play = Rollout(world, Scripted(lambda *_, said=answers: next(said)), chat(), run.rollout)
        (episode,) = play.play([Attempt(task, 0, 1, 1.0)])
        assert episode.success
        assert [turn.prompt_ids for turn in episode.turns] == chat().prompts([demo.prompt for demo in demos])


def test_an_expert_stops_when_the_episode_does_and_without_a_plan_shows_nothing():
    assert [demo.answer for demo in demonstrate(Countdown(), [Task("n-2", "demo")], haste=0, history=1, seed=0)] == [
        "down",
        "down",
    ]
    assert demonstrate(Countdown(), [Task("n-0", "demo")], haste=0, history=1, seed=0) == []


@pytest.mark.parametrize("name", ["tinyguess", "minihouse", "webshop"])
def test_demonstrated_tasks_are_neither_trained_nor_scored(name):
    world = create(name, {}, style="compact")
    tasks = {split: world.tasks(split) for split in ("demo", "train", "val")}
    others = [*tasks["train"], *tasks["val"]]
    assert len(tasks["demo"]) >= 500
    assert not {task.id for task in tasks["demo"]} & {task.id for task in others}
    if name == "webshop":
        assert not {task.meta["asin"] for task in tasks["demo"]} & {task.meta["asin"] for task in others}
