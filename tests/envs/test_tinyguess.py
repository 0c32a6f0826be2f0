import asyncio
import itertools
from collections import Counter

import pytest

from envs.base import Task, View
from envs.check import play
from envs.tinyguess import HIGHEST, NUM_TURNS, TinyGuess, interval, secret
from flwr_agent.errors import ConfigError


def steps_of(task, actions):
    return asyncio.run(play(TinyGuess(), task, actions, seed=0))


def task_with(number):
    return next(task for task in TinyGuess().tasks("train") if secret(task.id) == number)


def test_bisection_finds_every_number_within_the_turns():
    for number in range(1, HIGHEST + 1):
        task = task_with(number)
        steps = steps_of(task, TinyGuess().oracle(task))
        assert len(steps) - 1 <= NUM_TURNS
        assert steps[-1].text == "Correct!"
        assert steps[-1].reward == 1.0


def test_answers_say_which_way_to_go():
    texts = [step.text for step in steps_of(task_with(30), ["10", "40", "what?", "30"])[1:]]
    assert texts == ["higher", "lower", "say a number", "Correct!"]


def test_the_sixth_miss_ends_the_game_without_reward():
    steps = steps_of(task_with(30), ["1"] * 9)
    assert len(steps) == 1 + NUM_TURNS
    assert steps[-1].truncated
    assert not steps[-1].terminated
    assert sum(step.reward for step in steps) == 0.0


def test_secrets_are_spread_and_do_not_follow_the_row_number():
    secrets = [secret(task.id) for task in TinyGuess().tasks("train")]
    counts = Counter(secrets)
    assert set(counts) == set(range(1, HIGHEST + 1))
    assert max(counts.values()) < 2 * min(counts.values())
    steps = Counter((b - a) % HIGHEST for a, b in itertools.pairwise(secrets))
    assert steps.most_common(1)[0][1] < 0.05 * len(secrets)


def test_the_category_is_the_interval_of_the_secret():
    assert (interval(1), interval(10), interval(11), interval(50)) == ("01-10", "01-10", "11-20", "41-50")
    assert all(task.meta["category"] == interval(secret(task.id)) for task in TinyGuess().tasks("val"))


@pytest.mark.parametrize(
    ("style", "text", "expected"),
    [
        ("paper", "<think>mid</think><answer> 25 </answer> or 7", ("25", True)),
        ("paper", "maybe 25 or 26", ("26", False)),
        ("paper", "no idea", ("no idea", False)),
        ("compact", "25", ("25", True)),
        ("compact", "25 26", ("26", False)),
        ("compact", "", ("", False)),
    ],
)
def test_the_tag_is_taken_else_the_last_integer(style, text, expected):
    assert TinyGuess(style=style).parse_action(text) == expected


def test_prompts_hold_the_task_the_past_and_the_observation():
    view = View("guess a number", "lower", None, (("higher", "40"),), num_steps=2)
    paper = TinyGuess().render(view)
    assert "guess a number." in paper
    assert "[Observation 2: 'higher', Action 2: '40']" in paper
    assert "<answer> </answer>" in paper
    assert TinyGuess(style="compact").render(view) == "task : guess a number\nhigher > 40\nlower >"


def test_an_unknown_split_is_refused():
    with pytest.raises(ConfigError, match="split='test'"):
        TinyGuess().tasks("test")


def test_a_number_too_long_for_an_integer_is_only_a_miss():
    assert steps_of(Task("guess-x-1", "x"), ["9" * 10_000])[-1].text == "lower"
