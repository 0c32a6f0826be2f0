"""A second opinion on an episode: a function or an HTTP judge scores it beside the environment's own reward.

It is asked once, when the environment ends the episode. A verifier that fails, or says something that is no score,
fails the episode; it never counts as a zero.
"""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import inspect
import json
import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Any

from envs import named
from envs.base import Env, EnvAdapter, Step, Task
from envs.places import address, unreached
from envs.wrapper import Wrapper
from flwr_agent.errors import ConfigError, EnvError

NONE = "none"
GROUP = "flwr_agent.verifiers"
"""Entry-point group in which an installed package offers verifiers."""
JUDGE_S = 60.0
"""Seconds a verifier may take."""


@dataclass(frozen=True, slots=True)
class Transcript:
    """A finished episode as a verifier sees it."""

    task: Task
    instruction: str
    turns: tuple[tuple[str, str], ...]
    """(observation, action) pairs, oldest first."""
    last: Step
    """What the last action led to, with the environment's own verdict in `info`."""
    reward: float
    """The environment's own return."""

    def to_json(self) -> dict[str, Any]:
        """What an HTTP judge is sent."""
        return {
            "task": {"id": self.task.id, "split": self.task.split, "meta": dict(self.task.meta)},
            "instruction": self.instruction,
            "turns": [{"observation": observation, "action": action} for observation, action in self.turns],
            "observation": self.last.text,
            "reward": self.reward,
            "success": bool(self.last.info.get("success")),
        }


Verdict = float | Mapping[str, Any]
"""A score in [0, 1], or `{"score": ..., "success": ...}`; without `success` only a full score is one."""
Verify = Callable[[Transcript], Verdict | Awaitable[Verdict]]


def verified(adapter: EnvAdapter, verifier: str, *, weight: float = 1.0) -> EnvAdapter:
    """The adapter with `weight * score + (1 - weight) * own` as its reward; as it is for `none`.

    Args:
        adapter: the environment.
        verifier: `module:function` or an entry point, taking a `Transcript` and giving a `Verdict`; the URL of a judge
            that is sent `Transcript.to_json()` and answers with a JSON verdict; or `none`.
        weight: the verifier's part of the reward.

    Raises:
        ConfigError: no such function, or a weight outside [0, 1].

    Example:
        >>> from envs.tinyguess import TinyGuess
        >>> verified(TinyGuess(), "none").name
        'tinyguess'
    """
    if verifier == NONE:
        return adapter
    if not 0.0 <= weight <= 1.0:
        raise ConfigError("env.verifier_weight", weight, "must lie in [0, 1]")
    if "://" in verifier:
        address("env.verifier", verifier, "give http://HOST:PORT of a judge")
        return Verified(adapter, verifier, _judge(verifier), weight, source="")
    verify = _function(verifier)
    return Verified(adapter, verifier, verify, weight, source=_source(verify))


class Verified(Wrapper):
    """An environment whose episodes are scored by a verifier too."""

    def __init__(self, inner: EnvAdapter, verifier: str, verify: Verify, weight: float, *, source: str):
        super().__init__(inner)
        self._verifier, self._verify, self._weight, self._source = verifier, verify, weight, source

    def make(self) -> VerifiedEnv:
        """An episode of the inner environment, scored at its end."""
        return VerifiedEnv(self.inner.make(), self._verdict, self._weight)

    def fingerprint(self) -> str:
        """Digest of the inner environment, the verifier with its source text, and its weight."""
        parts = [self.inner.fingerprint(), self._verifier, self._source, self._weight]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()

    async def _verdict(self, transcript: Transcript) -> tuple[float, bool | None]:
        """Score and success of an episode.

        Raises:
            EnvError: the verifier failed, took too long, or gave no verdict.
        """
        try:
            async with asyncio.timeout(JUDGE_S):
                return _read(await self._ask(transcript))
        except Exception as error:
            raise EnvError(f"verifier {self._verifier}: {type(error).__name__}: {error}") from error

    async def _ask(self, transcript: Transcript) -> Verdict:
        answer = await asyncio.to_thread(self._verify, transcript)
        return await answer if isinstance(answer, Awaitable) else answer


class VerifiedEnv:
    """One episode; what it pays is blended from the environment's rewards and the verdict."""

    def __init__(
        self, inner: Env, verdict: Callable[[Transcript], Awaitable[tuple[float, bool | None]]], weight: float
    ):
        self._inner, self._verdict, self._weight = inner, verdict, weight
        self._task = Task(id="none", split="none")
        self._instruction, self._own = "", 0.0
        self._turns: list[tuple[str, str]] = []
        self._last = Step("")
        self._is_judged = False

    async def reset(self, task: Task, *, seed: int) -> Step:
        """Start `task`."""
        step = await self._inner.reset(task, seed=seed)
        self._task, self._turns, self._is_judged = task, [], False
        self._instruction, self._own, self._last = str(step.info.get("instruction", "")), step.reward, step
        return await self._blended(step)

    async def step(self, action: str) -> Step:
        """Apply one action; the one that ends the episode is paid the verdict too.

        Raises:
            EnvError: the verifier failed.
        """
        step = await self._inner.step(action)
        if self._is_judged:
            return dataclasses.replace(step, reward=0.0, info=self._last.info)
        self._turns.append((self._last.text, action))
        self._own += step.reward
        self._last = step
        return await self._blended(step)

    async def close(self) -> None:
        """Close the inner episode."""
        await self._inner.close()

    async def _blended(self, step: Step) -> Step:
        own = 1.0 - self._weight
        reward, score = own * step.reward, own * float(step.info.get("task_score", self._own))
        if not step.done:
            return dataclasses.replace(step, reward=reward, info={**step.info, "task_score": score, "success": False})
        given, is_success = await self._verdict(
            Transcript(self._task, self._instruction, tuple(self._turns), step, self._own)
        )
        self._is_judged = True
        score += self._weight * given
        info = {
            **step.info,
            "task_score": score,
            "success": score >= 1.0 - 1e-9 if is_success is None else is_success,
            "own_score": float(step.info.get("task_score", self._own)),
            "verifier_score": given,
        }
        self._last = dataclasses.replace(step, reward=reward + self._weight * given, info=info)
        return self._last


def _read(verdict: Verdict) -> tuple[float, bool | None]:
    is_success = verdict.get("success") if isinstance(verdict, Mapping) else None
    score = verdict.get("score") if isinstance(verdict, Mapping) else verdict
    if score is None or isinstance(score, str) or not (math.isfinite(score) and 0.0 <= score <= 1.0):
        raise ValueError(f"score {score!r} is not a number in [0, 1]")
    return float(score), None if is_success is None else bool(is_success)


def _function(verifier: str) -> Verify:
    points = entry_points(group=GROUP, name=verifier)
    target = next((point.value for point in points), verifier)
    if ":" not in target:
        fix = "no such verifier; give module:function, an entry point, the URL of a judge, or none"
        raise ConfigError("env.verifier", verifier, fix)
    found = named.load("env.verifier", verifier, target)
    if not inspect.isfunction(found):
        raise ConfigError("env.verifier", verifier, "is not a function")
    return found


def _source(verify: Verify) -> str:
    """Its text, where it has one: a changed verifier is another reward."""
    try:
        return inspect.getsource(verify)
    except OSError:
        return ""


def _judge(url: str) -> Verify:
    def ask(transcript: Transcript) -> Verdict:
        import requests

        try:
            response = requests.post(url, json=transcript.to_json(), timeout=JUDGE_S, allow_redirects=False)
        except requests.ConnectionError as error:
            raise ConnectionError(unreached(error)) from error
        if response.status_code != requests.codes.ok:
            raise ValueError(f"the judge answers with status {response.status_code}")
        return response.json()

    return ask
