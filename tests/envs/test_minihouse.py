import asyncio

import pytest

from envs.base import View
from envs.check import play
from envs.minihouse import MiniHouse
from envs.minihouse.episode import MAX_STEPS
from envs.minihouse.prompt import shorten
from flwr_agent.errors import ConfigError

TASK = MiniHouse().tasks("val")[3]


def test_the_oracle_earns_one_at_its_last_step_alone():
    steps = asyncio.run(play(MiniHouse(), TASK, MiniHouse().oracle(TASK), seed=1))
    assert [step.reward for step in steps] == [0.0] * (len(steps) - 1) + [1.0]
    assert steps[-1].info["success"]
    assert steps[-1].terminated


def test_an_episode_is_cut_after_fifty_steps():
    steps = asyncio.run(play(MiniHouse(), TASK, ["look"] * 99, seed=1))
    assert len(steps) == 1 + MAX_STEPS
    assert steps[-1].truncated
    assert not steps[-1].terminated


def test_help_is_not_listed():
    step = asyncio.run(play(MiniHouse(), TASK, [], seed=1))[0]
    assert "help" not in step.admissible
    assert "look" in step.admissible


def test_the_seed_changes_nothing():
    actions = MiniHouse().oracle(TASK)
    assert asyncio.run(play(MiniHouse(), TASK, actions, seed=1)) == asyncio.run(
        play(MiniHouse(), TASK, actions, seed=2)
    )


def test_the_first_paper_prompt_has_the_task_in_its_observation_only():
    step = asyncio.run(play(MiniHouse(), TASK, [], seed=1))[0]
    text = MiniHouse().render(View(step.info["instruction"], step.text, step.admissible))
    assert text.count("Your task is to: ") == 1
    assert text.startswith("\n")
    assert text.endswith("\n")
    assert "'inventory',\n 'look']" in text


def test_later_paper_prompts_state_task_history_and_admissible_commands():
    view = View("put a hot egg in countertop.", "now", ("help", "look", "open x 1"), (("a", "look"),), num_steps=4)
    text = MiniHouse().render(view)
    assert "environment. Your task is to: put a hot egg in countertop.\n" in text
    assert "[Observation 4: 'a', Action 4: 'look']" in text
    assert "You are now at step 5." in text
    assert "['look',\n 'open x 1']" in text
    assert "<action> </action>" in text


def test_the_compact_prompt_is_few_plain_words():
    history = (("You arrive at fridge 1. The fridge 1 is closed.", "open fridge 1"),)
    seen = "You open the fridge 1. The fridge 1 is open. In it, you see a egg 2, and a cup 1."
    view = View("put a hot egg in countertop.", seen, ("look",), history, num_steps=3)
    assert MiniHouse(style="compact").render(view) == (
        "task : put a hot egg in countertop\nfridge 1 closed > open fridge 1\nin fridge 1 : egg 2 , cup 1 >"
    )


@pytest.mark.parametrize(
    ("text", "short"),
    [
        ("-= Welcome to TextWorld, ALFRED! =-\n\nYou are in the middle of a room. Looking quickly around you, you see "
         "a desk 1, and a bed 1.\n\nYour task is to: put a pen in bed.", "room : desk 1 , bed 1"),
        ("You arrive at desk 1. On the desk 1, you see nothing.", "on desk 1 : nothing"),
        ("On the desk 1, you see a pen 1.", "on desk 1 : pen 1"),
        ("You close the fridge 1.", "you close the fridge 1"),
        ("Nothing happens.", "nothing happens"),
    ],
)  # fmt: skip
def test_observations_are_shortened(text, short):
    assert shorten(text) == short


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("go to fridge 1", ("go to fridge 1", True)),
        ("Take egg 2 from fridge 1 \n because", ("take egg 2 from fridge 1", True)),
        ("clean egg 2 with sinkbasin 1", ("clean egg 2 with sinkbasin 1", True)),
        ("look", ("look", True)),
        ("fly to fridge 1", ("fly to fridge 1", False)),
        ("go to fridge", ("go to fridge", False)),
        ("", ("", False)),
    ],
)
def test_a_compact_answer_is_valid_when_it_reads_like_a_command(text, expected):
    assert MiniHouse(style="compact").parse_action(text) == expected


def test_every_admissible_command_is_a_valid_compact_answer():
    env = MiniHouse(style="compact")
    for task in env.tasks("train")[:30]:
        for step in asyncio.run(play(env, task, env.oracle(task), seed=0)):
            assert all(env.parse_action(command) == (command, True) for command in step.admissible)


def test_a_paper_answer_without_a_tag_is_its_last_thirty_characters():
    assert MiniHouse().parse_action("x" * 40 + "take egg 1 from countertop 1") == (
        "xx" + "take egg 1 from countertop 1",
        False,
    )


def test_an_unknown_split_is_refused():
    with pytest.raises(ConfigError, match=r"split='valid'.*did you mean 'val'"):
        MiniHouse().tasks("valid")
