"""The agent loop: what is shown, what is recorded, and what happens when an environment breaks."""

import asyncio
import logging
import threading
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from typing import ClassVar

import pytest
from fakes import config
from hypothesis import given, settings
from hypothesis import strategies as st
from policies import chat as words
from policies import policy
from talkers import Countdown, Fault, Scripted, chat, ids

from envs.base import Task, View
from envs.tinyguess import INSTRUCTION, START, TinyGuess
from flwr_agent.errors import ConfigError
from flwr_agent.rl.episode import Episode, Group, StopReason
from flwr_agent.rl.generate import Request, TransformersGenerator
from flwr_agent.rl.rollout import Attempt, Rollout
from flwr_agent.rl.samples import Sample, to_samples

MODES = ("windowed", "concat")
SCHEDULES = ("lockstep", "continuous")
PLACES = ("make", "reset", "render", "parse_action", "step")


def attempts(*numbers: int, group: int = 1) -> list[Attempt]:
    tasks = [Task(f"n-{number}", "train") for number in numbers]
    return [Attempt(task, i, 7, 1.0) for task in tasks for i in range(group)]


def rollout(world, say=lambda *_: "down", talk=None, **keys) -> Rollout:
    keys = {"max_turns": 8, "max_prompt_tokens": 1000} | keys
    run = config(**{f"rollout__{key}": value for key, value in keys.items()})
    return Rollout(world, Scripted(say, talk), talk or chat(), run.rollout)


def outcome(episode: Episode) -> tuple:
    return episode.task_id, episode.sample, episode.stop, episode.score, episode.success, len(episode.turns)


def samples(episodes: list[Episode], mode: str):
    run = config(rollout__mode=mode)
    return to_samples([Group(e.task_id, [e]) for e in episodes], run.algorithm, run.rollout)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("mode", MODES)
def test_results_come_in_the_order_of_the_attempts(mode, schedule):
    play = rollout(Countdown(), mode=mode, schedule=schedule)
    numbers = (3, 1, 5, 0, 2, 4)
    assert [outcome(e) for e in play.play(attempts(*numbers))] == [
        (f"n-{n}", 0, StopReason.DONE, 0.25 * n, True, n) for n in numbers
    ]
    assert play.play([]) == []


def test_one_thread_decodes_while_episodes_go_their_own_way():
    """CUDA's libraries keep a workspace for every thread that has used them."""

    class Watched(Scripted):
        threads: ClassVar[set[int]] = set()

        def collect(self):
            self.threads.add(threading.get_ident())
            return super().collect()

    run = config(rollout__max_turns=8, rollout__schedule="continuous")
    played = Rollout(Countdown(), Watched(lambda *_: "down", at_once=1), chat(), run.rollout).play(attempts(*range(6)))
    assert all(episode.success for episode in played)
    assert len(Watched.threads) == 1
    assert threading.get_ident() not in Watched.threads


@pytest.mark.parametrize("history", [0, 1, 2])
def test_a_windowed_prompt_shows_the_task_the_last_k_turns_and_the_observation(history):
    world = Countdown()
    play = rollout(world, lambda text, _: "up" if "3 left" in text[-60:] else "down", history=history, max_turns=5)
    (episode,) = play.play(attempts(5))
    pairs = [("5 left", "down"), ("4 left", "down"), ("3 left", "up"), ("3 left", "up")]
    shown = [pairs[max(0, turn - history) : turn] for turn in range(5)]
    seen = ["5 left", "4 left", "3 left", "3 left", "3 left"]
    views = [View("n-5", seen[i], None, tuple(shown[i]), i) for i in range(5)]
    assert world.views[:5] == views
    messages = [f"n-5|{''.join(f'{o}>{a};' for o, a in shown[i])}{seen[i]}" for i in range(5)]
    assert [turn.prompt_ids for turn in episode.turns] == chat().prompts(messages)


def test_a_world_with_prompts_of_its_own_shows_them():
    guesses, task = iter(["51", "0", "1"]), TinyGuess().tasks("val")[0]
    play = rollout(TinyGuess(style="compact"), lambda *_: next(guesses), words(), max_turns=3)
    (episode,) = play.play([Attempt(task, 0, 7, 1.0)])
    (shown,) = words().prompts([f"task : {INSTRUCTION}\n{START} > 51\nlower > 0\nhigher >"])
    assert episode.turns[2].prompt_ids == shown


@pytest.mark.parametrize("mode", MODES)
@settings(max_examples=12)
@given(limit=st.integers(8, 90), answers=st.lists(st.sampled_from(["down", "up", "d" * 30]), min_size=8, max_size=8))
def test_the_tokens_trained_on_are_the_tokens_generated_from(mode, limit, answers):
    def say(_: str, request: Request) -> str:
        return answers[request.seed % 8]

    play = rollout(Countdown(), say, mode=mode, max_prompt_tokens=limit, max_turns=6, max_new_tokens=12)
    rows = samples(play.play(attempts(2, 3, group=2)), mode)
    asked = Counter((*request.prompt_ids, "->", *told.ids) for request, told in play.generator.answered)
    assert Counter(exchange for row in rows for exchange in exchanges(row)) == asked
    if mode == "windowed":
        assert all(len(row.prompt_ids) <= limit for row in rows)


def exchanges(row: Sample) -> Iterator[tuple]:
    """What the model had read and what it said, for each answer in a row."""
    tokens, own = row.prompt_ids + row.response_ids, [0] * len(row.prompt_ids) + row.mask
    for start, end in pairwise(i for i in range(len(own) + 1) if i in (0, len(own)) or own[i] != own[i - 1]):
        if own[start]:
            yield (*tokens[:start], "->", *tokens[start:end])


def test_a_conversation_grows_by_its_answers_and_by_what_follows_them():
    play = rollout(Countdown(), mode="concat")
    (episode,) = play.play(attempts(4))
    (row,) = samples([episode], "concat")
    asked, told = zip(*play.generator.answered, strict=True)
    assert asked[0].prompt_ids == chat().opening("Count down.", "n-4|4 left") == row.prompt_ids
    for turn, ((before, after), said) in enumerate(zip(pairwise(asked), told, strict=False)):
        glue = chat().continuation(said.ids, f"{3 - turn} left")
        assert after.prompt_ids == before.prompt_ids + said.ids + glue
        assert episode.turns[turn + 1].prompt_ids == glue
    assert row.prompt_ids + row.response_ids == asked[-1].prompt_ids + told[-1].ids
    own = [i for i, m in zip(row.response_ids, row.mask, strict=True) if m]
    assert own == ids("down<|im_end|>") * 4
    assert [p for p, m in zip(row.logprobs, row.mask, strict=True) if m] == told[0].logprobs * 4


def test_a_conversation_ends_when_the_next_answer_might_not_fit():
    play = rollout(Countdown(padding="." * 100), mode="concat", max_prompt_tokens=300, max_turns=10, max_new_tokens=20)
    (episode,) = play.play(attempts(9))
    sizes = [len(request.prompt_ids) for request in play.generator.seen]
    following = len(chat().continuation(ids("down<|im_end|>"), f"{9 - len(sizes)} left{'.' * 100}"))
    assert (episode.stop, episode.success) == (StopReason.CONTEXT_FULL, False)
    assert 1 < len(episode.turns) < 9
    assert sizes[-1] + 20 <= 300 + 10 * 20 < sizes[-1] + len(ids("down<|im_end|>")) + following + 20


def test_an_opening_that_is_too_long_loses_its_left_end():
    play = rollout(Countdown(padding="." * 100), mode="concat", max_prompt_tokens=40, max_turns=1)
    play.play(attempts(1))
    assert play.generator.seen[0].prompt_ids == chat().opening("Count down.", "n-1|1 left" + "." * 100)[-40:]


@pytest.mark.parametrize("mode", MODES)
def test_running_out_of_turns_ends_an_episode(mode):
    play = rollout(Countdown(), mode=mode, max_turns=3)
    stops = [(e.stop, e.success, len(e.turns)) for e in play.play(attempts(4, 3))]
    assert stops == [(StopReason.MAX_TURNS, False, 3), (StopReason.DONE, True, 3)]


@pytest.mark.parametrize("mode", MODES)
def test_an_episode_that_is_done_at_its_reset_asks_for_nothing(mode):
    play = rollout(Countdown(), mode=mode)
    (episode,) = play.play(attempts(0))
    assert outcome(episode) == ("n-0", 0, StopReason.DONE, 0.0, True, 0)
    assert play.generator.seen == []
    assert samples([episode], mode) == []


def test_an_answer_that_breaks_the_format_is_flagged_and_acted_on():
    play = rollout(Countdown(), lambda _, request: "DOWN" if request.seed % 2 else "down")
    turns = [turn for episode in play.play(attempts(1, 2, 3)) for turn in episode.turns]
    assert {(turn.action, turn.is_valid, chat().text(turn.response_ids)) for turn in turns} == {
        ("down", False, "DOWN"),
        ("down", True, "down"),
    }


def test_siblings_meet_one_world_with_seeds_of_their_own_for_every_answer():
    world = Countdown()
    play = rollout(world)
    play.play(attempts(2, 3, group=4))
    assert len(set(world.seeds)) == 2
    assert len({request.seed for request in play.generator.seen}) == len(play.generator.seen) == 4 * (2 + 3)
    again = rollout(Countdown())
    again.play(attempts(3, 2, group=4))
    assert {r.seed for r in again.generator.seen} == {r.seed for r in play.generator.seen}


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("place", PLACES)
def test_an_episode_that_fails_once_is_played_again_as_if_nothing_had_happened(place, mode, schedule):
    who = "any" if place in ("make", "parse_action") else "n-2"
    fine = rollout(Countdown(), mode=mode).play(attempts(1, 2, 3))
    assert rollout(Countdown({(who, place): 1}), mode=mode, schedule=schedule).play(attempts(1, 2, 3)) == fine


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("place", ["reset", "render", "step"])
def test_an_episode_that_keeps_failing_is_a_value_and_hurts_nobody(place, mode, caplog: pytest.LogCaptureFixture):
    fine = rollout(Countdown(), mode=mode).play(attempts(1, 2, 3))
    world = Countdown({("n-2", place): 99})
    with caplog.at_level(logging.WARNING):
        found = rollout(world, mode=mode).play(attempts(1, 2, 3))
    assert [found[0], found[2]] == [fine[0], fine[2]]
    assert (found[1].stop, found[1].success) == (StopReason.ENV_ERROR, False)
    assert found[1].error == f"Fault: n-2 breaks at {place}"
    assert len(world.made) == 4
    assert "n-2" in caplog.text
    assert len(samples(found, mode)) == len(samples([fine[0], fine[2]], mode))


def test_an_adapter_that_makes_no_environment_fails_every_episode_without_raising():
    found = rollout(Countdown({("any", "make"): 99})).play(attempts(1, 2))
    assert {e.stop for e in found} == {StopReason.ENV_ERROR}


@pytest.mark.parametrize("times", [1, 99])
def test_what_was_played_stands_when_closing_fails(times, caplog: pytest.LogCaptureFixture):
    world = Countdown({("n-2", "close"): times})
    found = rollout(world).play(attempts(1, 2, 3))
    assert [outcome(e)[2:] for e in found] == [(StopReason.DONE, 0.25 * n, True, n) for n in (1, 2, 3)]
    assert "could not be closed: Fault: n-2 breaks at close" in caplog.text
    assert [game.num_closed for game in world.made] == [1, 1, 1]


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_every_environment_is_closed_also_when_it_fails_or_the_engine_does(schedule):
    world = Countdown({("n-2", "reset"): 99, ("n-3", "step"): 99})
    rollout(world, schedule=schedule).play(attempts(1, 2, 3))
    assert [game.num_closed for game in world.made] == [1] * 5

    def broken(*_: object) -> str:
        raise Fault("no memory")

    world = Countdown()
    with pytest.raises(Fault, match="no memory"):
        rollout(world, broken, schedule=schedule).play(attempts(1, 2, 3))
    assert [game.num_closed for game in world.made] == [1] * 3


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("mode", MODES)
def test_an_episode_is_the_same_alone_and_in_company(mode, schedule):
    world, run = (
        TinyGuess(style="compact"),
        config(rollout__mode=mode, rollout__max_turns=3, rollout__max_new_tokens=5, rollout__schedule=schedule).rollout,
    )
    engine = TransformersGenerator(policy(seed=2), eos_ids=sorted(words().eos_ids), pad_id=words().pad_id)
    play = Rollout(world, engine, words(), run)
    wanted = [Attempt(task, i, 5, 1.0) for task in world.tasks("train")[:2] for i in range(2)]
    together = play.play(wanted)
    alone = [play.play([attempt])[0] for attempt in wanted[::-1]][::-1]
    for one, other in zip(together, alone, strict=True):
        assert outcome(one) == outcome(other)
        assert [(t.prompt_ids, t.response_ids) for t in one.turns] == [
            (t.prompt_ids, t.response_ids) for t in other.turns
        ]


class Slow(Countdown):
    """A world in which the steps of `n-4` take until all others have finished."""

    def make(self):
        game, world = super().make(), self
        step = game.step

        async def waiting(action: str):
            while game.task_id == "n-4" and any(other.left for other in world.made if other is not game):
                await asyncio.sleep(0.001)
            return await step(action)

        game.step = waiting
        return game


def test_a_step_that_takes_long_holds_up_nobody_else_in_a_continuous_rollout():
    episodes = rollout(Slow(), schedule="continuous").play(attempts(4, 1, 3))
    assert [(e.stop, len(e.turns)) for e in episodes] == [
        (StopReason.DONE, 4),
        (StopReason.DONE, 1),
        (StopReason.DONE, 3),
    ]


def test_an_error_of_our_own_ends_a_continuous_rollout():
    class Unwilling(type(chat())):
        def continuation(self, answered, message):
            raise ConfigError("rollout.mode", "concat", "no")

    play = rollout(Countdown(), talk=Unwilling(chat().tokenizer), mode="concat", schedule="continuous")
    with pytest.raises(ConfigError, match="no"):
        play.play(attempts(2, 3))
