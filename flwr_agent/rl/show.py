"""One episode of a policy for people to read."""

from __future__ import annotations

from envs.base import Env, EnvAdapter, Step, Task
from envs.wrapper import Wrapper
from flwr_agent.arrays import ACTOR, part
from flwr_agent.config import RunConfig
from flwr_agent.errors import EnvError
from flwr_agent.requests import Arrays
from flwr_agent.rl.chat import Chat
from flwr_agent.rl.episode import StopReason
from flwr_agent.rl.generate import TransformersGenerator
from flwr_agent.rl.model import load_policy, load_tokenizer
from flwr_agent.rl.rollout import Attempt, Rollout
from flwr_agent.rl.weights import load_weights
from flwr_agent.seeds import seed_for


def show(
    config: RunConfig, arrays: Arrays, adapter: EnvAdapter, task: Task, *, temperature: float
) -> tuple[list[Step], list[str]]:
    """The steps of an episode from its reset on, and what the policy answered to each but the last.

    Raises:
        EnvError: the environment failed.
    """
    chat, policy = Chat(load_tokenizer(config)), load_policy(config)
    load_weights(policy, part(arrays, ACTOR))
    generator = TransformersGenerator(policy, eos_ids=sorted(chat.eos_ids), pad_id=chat.pad_id)
    recorded = _Recorded(adapter)
    rollout = Rollout(recorded, generator, chat, config.rollout)
    [episode] = rollout.play([Attempt(task, 0, seed_for("show", task.id), temperature)])
    if episode.stop is StopReason.ENV_ERROR:
        raise EnvError(episode.error)
    return recorded.steps, [chat.text(turn.response_ids) for turn in episode.turns]


class _Recorded(Wrapper):
    """An environment whose last episode can be read."""

    def __init__(self, inner: EnvAdapter):
        super().__init__(inner)
        self.steps: list[Step] = []

    def make(self) -> Env:
        return _RecordedEnv(self.inner.make(), self.steps)


class _RecordedEnv:
    def __init__(self, inner: Env, steps: list[Step]):
        self._inner, self._steps = inner, steps

    async def reset(self, task: Task, *, seed: int) -> Step:
        self._steps[:] = [await self._inner.reset(task, seed=seed)]
        return self._steps[0]

    async def step(self, action: str) -> Step:
        self._steps.append(await self._inner.step(action))
        return self._steps[-1]

    async def close(self) -> None:
        await self._inner.close()
