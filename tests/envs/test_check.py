"""`check` must find each broken clause: one broken environment per clause."""

import dataclasses
import itertools
import re

import pytest

from envs import registry
from envs.base import Task
from envs.check import check
from envs.tinyguess import Guess, TinyGuess
from flwr_agent.errors import DataError

_COUNTER = itertools.count()


class Reshaped(Guess):
    """A game whose steps are changed on the way out."""

    def __init__(self, change):
        super().__init__()
        self.change = change

    async def reset(self, task, *, seed):
        return self.change(await super().reset(task, seed=seed))

    async def step(self, action):
        return self.change(await super().step(action))


def broken(**methods):
    return type("Broken", (TinyGuess,), methods)()


def reshaped(change):
    return broken(make=lambda _: Reshaped(change))


class Raising(Guess):
    async def step(self, action):
        if not action:
            raise ValueError("empty")
        return await super().step(action)


class Damaged(Guess):
    async def reset(self, task, *, seed):
        raise DataError("games.json", "content", "is not JSON")


class JunkMatters(Guess):
    async def step(self, action):
        if not action.strip():
            self._secret = self._secret % 50 + 1
        return await super().step(action)


class Generous(Guess):
    async def step(self, action):
        return dataclasses.replace(await super().step(action), reward=1.0)


class OneClose(Guess):
    closed = False

    async def close(self):
        if self.closed:
            raise RuntimeError("closed twice")
        self.closed = True


def same_tasks(self, split):
    return (Task("only", split, {"category": "x"}),)


def bare_tasks(self, split):
    return (Task(f"{split}-0", split, {"secret": {1, 2}}),)


def growing_tasks(self, split):
    return (Task(f"{split}-{next(_COUNTER)}", split, {"category": "x"}),)


@pytest.mark.parametrize(
    ("adapter", "message"),
    [
        (broken(tasks=same_tasks), "id stands in 'train' and again in 'val'"),
        (broken(tasks=bare_tasks), "meta has no 'category'"),
        (broken(tasks=bare_tasks), "meta does not survive JSON"),
        (broken(tasks=growing_tasks), "two calls give two lists"),
        (broken(tasks=lambda self, split: ()), "is empty"),
        (broken(parse_action=lambda self, text: (text.split()[0], True)), r"fails: IndexError"),
        (broken(parse_action=lambda self, text: text), r"must give \(str, bool\)|fails: ValueError"),
        (broken(fingerprint=lambda self: str(next(_COUNTER))), "fingerprint"),
        (broken(oracle=lambda self, task: ["51"]), "the oracle does not succeed"),
        (reshaped(lambda s: dataclasses.replace(s, text=f"{s.text} {next(_COUNTER)}")), "two transcripts"),
        (reshaped(lambda s: dataclasses.replace(s, reward=1.5)), r"reward 1.5 is outside \[0, 1\]"),
        (reshaped(lambda s: dataclasses.replace(s, reward=float("nan"))), "reward nan"),
        (reshaped(lambda s: dataclasses.replace(s, info={**s.info, "success": 1})), "success"),
        (reshaped(lambda s: dataclasses.replace(s, info={**s.info, "task_id": "?"})), "task_id"),
        (reshaped(lambda s: dataclasses.replace(s, info={**s.info, "task_score": 2})), "task_score"),
        (reshaped(lambda s: dataclasses.replace(s, info={**s.info, "extra": object()})), "info does not survive JSON"),
        (broken(render=lambda self, view: None), r"render\(view\) must give a str, not None"),
        (broken(system_prompt=lambda self: 3), r"system_prompt\(\) must give a str, not 3"),
        (reshaped(lambda s: dataclasses.replace(s, admissible=5)), "admissible must be a tuple of str, or None"),
        (reshaped(lambda s: dataclasses.replace(s, info={**s.info, "task_score": "high"})), "task_score"),
        (broken(make=lambda self: Raising()), r"fails: ValueError: empty \(.*test_check\.py:\d+\)"),
        (broken(make=lambda self: JunkMatters()), "later answers differ"),
        (broken(make=lambda self: Generous()), "is rewarded"),
        (broken(make=lambda self: Generous()), "after the end must be done and pay 0"),
        (broken(make=lambda self: OneClose()), "closed twice"),
    ],
)
def test_a_broken_clause_is_named(adapter, message):
    problems = check(adapter, episodes=3)
    assert any(re.search(message, problem) for problem in problems), problems


def test_a_damaged_data_file_is_no_breach_of_the_contract():
    with pytest.raises(DataError, match=r"games\.json: content: is not JSON"):
        check(broken(make=lambda self: Damaged()), episodes=1)


def test_too_long_an_oracle_is_named():
    assert any("more than 2 actions" in problem for problem in check(TinyGuess(), max_steps=2))


def test_a_clause_is_said_once_with_how_often_it_is_broken():
    assert check(broken(make=lambda self: Raising()), episodes=3) == [
        line for line in check(broken(make=lambda self: Raising()), episodes=3) if " and 5 more: fails: " in line
    ]
    [bare] = [line for line in check(broken(tasks=bare_tasks), episodes=1) if "category" in line]
    assert bare == "task train-0 and 1 more: meta has no 'category'"
    differing = check(broken(make=lambda self: JunkMatters()), episodes=3)
    assert sum("later answers differ" in line for line in differing) == 1


def test_a_judge_that_is_not_there_is_said_once():
    adapter = registry.create("tinyguess", {"verifier": "http://127.0.0.1:9/judge"})
    [line] = check(adapter, episodes=2)
    assert re.search(r"^task .* and 3 more: fails: verifier http://127\.0\.0\.1:9/judge: .*Connection refused$", line)
