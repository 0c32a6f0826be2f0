"""Ten thousand wild answers on each household, guessing game and plain class; the shop has a test of its own."""

import asyncio
import random

import pytest

from envs.base import Task
from envs.check import check
from envs.minihouse.engine import NOTHING_HAPPENS
from envs.registry import create
from tests.envs.wild import wild

NUM_ACTIONS = 10_000


class Parrot:
    """A third party's plain class: says what it was told."""

    def tasks(self, split):
        return [Task(f"{split}-{n}", split, {"category": "parrot"}) for n in range(4)]

    def reset(self, task, seed):
        self.left = 40
        return "say something"

    def step(self, action):
        self.left -= 1
        return action, 0.0, False, self.left == 0, {}


async def fuzz(adapter, count, seed):
    """Steps of `count` wild answers, as `(before, action, after)`; every clause of an episode is checked on the way."""
    draw, tasks, env, step = random.Random(seed), adapter.tasks("train")[:4], adapter.make(), None
    for number in range(count):
        if step is None or step.done:
            step = await env.reset(tasks[number % len(tasks)], seed=number)
        raw = wild(draw, step.admissible)
        action, is_valid = adapter.parse_action(raw)
        assert isinstance(action, str)
        assert isinstance(is_valid, bool)
        action = raw if draw.random() < 0.5 else action
        before, step = step, await env.step(action)
        assert isinstance(step.text, str)
        assert 0.0 <= step.reward <= 1.0
        assert step.done or not step.reward
        yield before, action, step
    await env.close()


def play_households(adapter, count):
    """How many wild commands were legal; those that were not change nothing."""

    async def run():
        legal = 0
        async for before, action, after in fuzz(adapter, count, seed=3):
            if action.strip() in (*before.admissible, "help"):
                legal += 1
            else:
                assert after.text == NOTHING_HAPPENS, action[:80]
                assert after.admissible == before.admissible
        return legal

    return asyncio.run(run())


@pytest.mark.parametrize("style", ["paper", "compact"])
def test_a_household_answers_ten_thousand_wild_commands(style):
    assert NUM_ACTIONS / 10 < play_households(create("minihouse", {}, style=style), NUM_ACTIONS) < NUM_ACTIONS / 2


@pytest.mark.conformance
@pytest.mark.timeout(600)
def test_a_household_on_textworld_answers_ten_thousand_wild_commands():
    pytest.importorskip("textworld", reason="needs the extra alfworld")
    legal = play_households(create("alfworld", {"workers": 1}), NUM_ACTIONS)
    assert NUM_ACTIONS / 10 < legal < NUM_ACTIONS / 2


@pytest.mark.parametrize("name", ["tinyguess", f"{__name__}:Parrot"])
@pytest.mark.parametrize("style", ["paper", "compact"])
def test_games_and_plain_classes_answer_ten_thousand_wild_texts(name, style):
    async def run():
        return [after.text async for _, _, after in fuzz(create(name, {}, style=style), NUM_ACTIONS, seed=5)]

    texts = asyncio.run(run())
    assert len(texts) == NUM_ACTIONS
    if name == "tinyguess":
        assert {"say a number", "higher", "lower"} <= set(texts) <= {"say a number", "higher", "lower", "Correct!"}


def test_the_parrot_keeps_the_contract():
    assert [problem for problem in check(create(f"{__name__}:Parrot", {})) if "oracle" not in problem] == []
