"""The agent loop: many episodes at once, every token kept as generated.

Lockstep: each turn is one batch of answers. Continuous: every episode asks as soon as its environment has answered.

Windowed mode (the default): each turn is a fresh prompt made of the task, the last k turns and the observation.
Concat mode: one growing conversation per episode; its tokens are appended, never tokenised again.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from envs.base import Env, EnvAdapter, Step, Task, View
from flwr_agent.config import RolloutConfig
from flwr_agent.rl.chat import Chat
from flwr_agent.rl.desk import Desk
from flwr_agent.rl.episode import Episode, StopReason, Turn
from flwr_agent.rl.generate import Completion, Generator, Request
from flwr_agent.seeds import seed_for

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Attempt:
    """One episode to be played."""

    task: Task
    """What is attempted."""
    sample: int
    """Index within the group; siblings differ in it and so in their answers, never in the world they meet."""
    seed: int
    """Seed of the answers; the world's own seed is derived from the task."""
    temperature: float
    """Sampling temperature of the answers, or `GREEDY`."""


@dataclass(slots=True)
class _Live:
    """An episode in flight."""

    attempt: Attempt
    episode: Episode
    history: deque[tuple[str, str]]
    """The last k (observation, action) pairs."""
    env: Env = field(init=False)
    """Unset if it could not be made."""
    observation: str = ""
    instruction: str = ""
    message: str = ""
    """What the next prompt says."""
    context: list[int] = field(default_factory=list)
    """Concat mode: every token up to the last answer."""
    prompt: list[int] = field(default_factory=list)


class Rollout:
    """Plays attempts with a generator; owns no model and no environment data."""

    def __init__(self, adapter: EnvAdapter, generator: Generator, chat: Chat, config: RolloutConfig):
        self.adapter, self.generator, self.chat, self.config = adapter, generator, chat, config

    def play(self, attempts: Sequence[Attempt]) -> list[Episode]:
        """Episodes in the order of `attempts`; one that the environment fails is tried once more, then recorded so."""
        return asyncio.run(self._play(attempts))

    async def _play(self, attempts: Sequence[Attempt]) -> list[Episode]:
        episodes = await self._once(attempts)
        failed = [i for i, episode in enumerate(episodes) if episode.stop is StopReason.ENV_ERROR]
        repeated = await self._once([attempts[i] for i in failed]) if failed else []
        for i, again in zip(failed, repeated, strict=True):
            episodes[i] = again
            if again.stop is StopReason.ENV_ERROR:
                log.warning("task %s: the environment failed twice: %s", again.task_id, again.error)
        return episodes

    async def _once(self, attempts: Sequence[Attempt]) -> list[Episode]:
        k = self.config.history
        started = [_Live(a, Episode(a.task.id, a.sample), deque(maxlen=k)) for a in attempts]
        try:
            await (self._lockstep(started) if self.config.schedule == "lockstep" else self._continuous(started))
        finally:
            await _close([one.env for one in started if hasattr(one, "env")])
        return [one.episode for one in started]

    async def _lockstep(self, started: list[_Live]) -> None:
        """All live episodes take a turn together."""
        await asyncio.gather(*(self._start(one) for one in started))
        for _ in range(self.config.max_turns):
            live = self._prompted([one for one in started if one.episode.stop is StopReason.MAX_TURNS])
            if not live:
                break
            await asyncio.gather(*map(self._act, live, self._answers(live)))

    async def _continuous(self, started: list[_Live]) -> None:
        """Nobody waits for another's environment."""
        desk = Desk(self.generator)
        serving = asyncio.ensure_future(desk.serve())
        playing = asyncio.gather(*(self._alone(key, one, desk) for key, one in enumerate(started)))
        try:
            await asyncio.wait({serving, playing}, return_when=asyncio.FIRST_COMPLETED)
            if serving.done():
                playing.cancel()
        finally:
            desk.close()
            await asyncio.gather(serving, playing)

    async def _alone(self, key: int, one: _Live, desk: Desk) -> None:
        await self._start(one)
        for _ in range(self.config.max_turns):
            # Tokenising takes milliseconds without the interpreter's lock; in threads, others' prompts go on.
            if one.episode.stop is not StopReason.MAX_TURNS or not await asyncio.to_thread(self._prompted, [one]):
                break
            await self._act(one, await desk.answer(self._request(key, one)))

    async def _start(self, one: _Live) -> None:
        task = one.attempt.task
        with _boundary(one.episode):
            one.env = self.adapter.make()
            step = await one.env.reset(task, seed=seed_for("world", task.id))
            one.instruction = str(step.info.get("instruction", ""))
            self._see(one, step)

    async def _act(self, one: _Live, answer: Completion) -> None:
        if self.config.mode == "concat":
            one.context += one.prompt + answer.ids
        with _boundary(one.episode):
            action, is_valid = self.adapter.parse_action(self.chat.text(answer.ids))
            one.episode.turns.append(Turn(one.prompt, answer.ids, answer.logprobs, action, is_valid))
            one.history.append((one.observation, action))
            self._see(one, await one.env.step(action))

    def _see(self, one: _Live, step: Step) -> None:
        """Take in what the environment answered and word the next message."""
        episode = one.episode
        one.observation = step.text
        episode.score += step.reward
        episode.success = bool(step.info.get("success", False))
        episode.measures = {name: float(value) for name, value in step.info.get("measures", {}).items()}
        if step.done:
            episode.stop = StopReason.DONE
        elif self.config.mode == "windowed" or not episode.turns:
            past = tuple(one.history)
            one.message = self.adapter.render(
                View(one.instruction, step.text, step.admissible, past, len(episode.turns))
            )
        else:
            one.message = step.text

    def _prompted(self, live: list[_Live]) -> list[_Live]:
        """Those of `live` that have a next prompt, which is set; in concat mode the others' contexts are full."""
        if self.config.mode == "concat":
            return [one for one in live if self._continue(one)]
        if live:
            for one, ids in zip(live, self.chat.prompts([one.message for one in live]), strict=True):
                one.prompt = ids[-self.config.max_prompt_tokens :]
        return live

    def _continue(self, one: _Live) -> bool:
        """Set the next prompt of a conversation, or end it if prompt and answer would not fit."""
        config, turns = self.config, one.episode.turns
        if not turns:
            opening = self.chat.opening(self.adapter.system_prompt(), one.message)
            one.prompt = opening[-config.max_prompt_tokens :]
            return True
        one.prompt = self.chat.continuation(turns[-1].response_ids, one.message)
        budget = config.max_prompt_tokens + config.max_turns * config.max_new_tokens
        if len(one.context) + len(one.prompt) + config.max_new_tokens > budget:
            one.episode.stop = StopReason.CONTEXT_FULL
        return one.episode.stop is not StopReason.CONTEXT_FULL

    def _answers(self, live: list[_Live]) -> list[Completion]:
        """One answer to each prompt, in the order of `live`."""
        for key, one in enumerate(live):
            self.generator.submit(self._request(key, one))
        answers: list[Completion] = []
        while len(answers) < len(live):
            answers += self.generator.collect()
        return sorted(answers, key=lambda answer: answer.key)

    def _request(self, key: int, one: _Live) -> Request:
        attempt = one.attempt
        seed = seed_for(attempt.seed, attempt.task.id, attempt.sample, len(one.episode.turns))
        return Request(key, one.context + one.prompt, seed, self.config.max_new_tokens, attempt.temperature)


@contextmanager
def _boundary(episode: Episode) -> Iterator[None]:
    """The environment boundary: whatever an environment raises becomes a failed episode."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 (the environment boundary)
        episode.stop, episode.error = StopReason.ENV_ERROR, f"{type(error).__name__}: {error}"


async def _close(envs: Sequence[Env]) -> None:
    """Close all; what was played stands even if an environment cannot be closed."""
    for error in await asyncio.gather(*(env.close() for env in envs), return_exceptions=True):
        if isinstance(error, BaseException):
            log.warning("an environment could not be closed: %s: %s", type(error).__name__, error)
