"""The agent loop: many episodes at once, each turn one batch of answers, every token kept as generated.

Windowed mode (the default): each turn is a fresh prompt made of the task, the last k turns and the observation.
Concat mode: one growing conversation per episode; its tokens are appended, never tokenised again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from envs.base import Env, EnvAdapter, Step, Task, View
from flwr_agent.config import RolloutConfig
from flwr_agent.rl.chat import Chat
from flwr_agent.rl.episode import Episode, StopReason, Turn
from flwr_agent.rl.generate import Completion, Generator, Request
from flwr_agent.seeds import seed_for


@dataclass(frozen=True, slots=True)
class Attempt:
    """One episode to be played."""

    task: Task
    sample: int
    """Index within the group; siblings differ in it and so in their answers, never in the world they meet."""
    seed: int
    """Seed of the answers; the world's own seed is derived from the task."""
    temperature: float


@dataclass(slots=True)
class _Live:
    """An episode in flight."""

    attempt: Attempt
    episode: Episode
    env: Env
    step: Step
    instruction: str = ""
    history: list[tuple[str, str]] = field(default_factory=list)
    context: list[int] = field(default_factory=list)
    prompt: list[int] = field(default_factory=list)


class Rollout:
    """Plays attempts with a generator; owns no model and no environment data."""

    def __init__(self, adapter: EnvAdapter, generator: Generator, chat: Chat, config: RolloutConfig):
        self.adapter, self.generator, self.chat, self.config = adapter, generator, chat, config

    def play(self, attempts: Sequence[Attempt]) -> list[Episode]:
        """Episodes in the order of `attempts`; one that fails is tried once more, then recorded as failed."""
        return asyncio.run(self._play(attempts))

    async def _play(self, attempts: Sequence[Attempt]) -> list[Episode]:
        episodes = await self._once(attempts)
        failed = [i for i, episode in enumerate(episodes) if episode.stop is StopReason.ENV_ERROR]
        for i, again in zip(failed, await self._once([attempts[i] for i in failed]), strict=True):
            episodes[i] = again
        return episodes

    async def _once(self, attempts: Sequence[Attempt]) -> list[Episode]:
        started = await asyncio.gather(*(self._start(attempt) for attempt in attempts))
        live = [one for one in started if one.episode.stop is not StopReason.ENV_ERROR]
        for _ in range(self.config.max_turns):
            if not live:
                break
            answers = self._answer(live)
            await asyncio.gather(*(self._act(one, answer) for one, answer in zip(live, answers, strict=True)))
            live = [one for one in live if one.episode.stop is StopReason.MAX_TURNS and not one.step.done]
        await asyncio.gather(*(one.env.close() for one in started))
        return [one.episode for one in started]

    async def _start(self, attempt: Attempt) -> _Live:
        episode, env = Episode(attempt.task.id, attempt.sample), self.adapter.make()
        one = _Live(attempt, episode, env, Step(text=""))
        step = await _guarded(env.reset(attempt.task, seed=seed_for("world", attempt.task.id)), episode)
        if step is not None:
            one.step, one.instruction = step, str(step.info.get("instruction", ""))
        return one

    def _answer(self, live: list[_Live]) -> list[Completion]:
        prompts = self._windowed(live) if self.config.mode == "windowed" else self._concat(live)
        for key, (one, prompt) in enumerate(zip(live, prompts, strict=True)):
            one.prompt = prompt
            seed = seed_for(one.attempt.seed, one.attempt.task.id, one.attempt.sample, len(one.episode.turns))
            self.generator.submit(
                Request(key, one.context + prompt, seed, self.config.max_new_tokens, one.attempt.temperature)
            )
        answers: list[Completion] = []
        while len(answers) < len(live):
            answers += self.generator.collect()
        return sorted(answers, key=lambda answer: answer.key)

    def _windowed(self, live: list[_Live]) -> list[list[int]]:
        k = self.config.history
        views = [
            View(
                one.instruction,
                one.step.text,
                one.step.admissible,
                tuple(one.history[-k:] if k else ()),
                len(one.episode.turns),
            )
            for one in live
        ]
        prompts = self.chat.prompts([self.adapter.render(view) for view in views])
        return [ids[-self.config.max_prompt_tokens :] for ids in prompts]

    def _concat(self, live: list[_Live]) -> list[list[int]]:
        return [
            self.chat.continuation(one.episode.turns[-1].response_ids, one.step.text)
            if one.episode.turns
            else self._opening(one)
            for one in live
        ]

    def _opening(self, one: _Live) -> list[int]:
        first = self.adapter.render(View(one.instruction, one.step.text, one.step.admissible))
        return self.chat.opening(self.adapter.system_prompt(), first)[-self.config.max_prompt_tokens :]

    async def _act(self, one: _Live, answer: Completion) -> None:
        action, is_valid = self.adapter.parse_action(self.chat.text(answer.ids))
        one.episode.turns.append(Turn(one.prompt, answer.ids, answer.logprobs, action, is_valid))
        step = await _guarded(one.env.step(action), one.episode)
        if step is None:
            return
        one.history.append((one.step.text, action))
        one.step = step
        one.episode.score += step.reward
        one.episode.success = bool(step.info.get("success", False))
        if self.config.mode == "concat":
            one.context += one.prompt + answer.ids
        if step.done:
            one.episode.stop = StopReason.DONE
        elif self.config.mode == "concat" and self._is_full(one):
            one.episode.stop = StopReason.CONTEXT_FULL

    def _is_full(self, one: _Live) -> bool:
        following = self.chat.continuation(one.episode.turns[-1].response_ids, one.step.text)
        budget = self.config.max_prompt_tokens + self.config.max_turns * self.config.max_new_tokens
        return len(one.context) + len(following) + self.config.max_new_tokens > budget


async def _guarded(call, episode: Episode) -> Step | None:
    """The environment boundary: whatever an environment raises becomes a failed episode."""
    try:
        return await call
    except Exception as error:  # noqa: BLE001 (the environment boundary)
        episode.stop, episode.error = StopReason.ENV_ERROR, f"{type(error).__name__}: {error}"
        return None
