"""Gymnasium's environments as ours, and ours as Gymnasium's."""

import asyncio
import warnings

import pytest

gymnasium = pytest.importorskip("gymnasium")

from gymnasium.utils.env_checker import check_env  # noqa: E402

from envs import registry  # noqa: E402
from envs.bridges.gym import from_gymnasium, to_gymnasium  # noqa: E402
from envs.check import check, play  # noqa: E402
from flwr_agent.errors import ConfigError, EnvError  # noqa: E402


class Speak(gymnasium.Env):
    """Say `go`; anything else pays less than nothing."""

    def __init__(self, *, word="go"):
        self.word = word
        self.action_space = self.observation_space = gymnasium.spaces.Text(10)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return f"say {self.word} {self.np_random.integers(9)}", {}

    def step(self, action):
        won = action == self.word
        return "done", 1.0 if won else -1.0, won, False, {}


gymnasium.register("Speak-v0", Speak)


@pytest.mark.parametrize("name", ["tinyguess", "minihouse", "webshop"])
def test_our_environments_pass_gymnasium_s_own_check(name):
    env = to_gymnasium(registry.create(name, {}), split="val")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check_env(env, skip_render_check=True)
    env.close()
    env.close()


def test_a_gymnasium_episode_is_the_adapter_s():
    adapter = registry.create("webshop", {})
    task = adapter.tasks("val")[5]
    env = to_gymnasium(adapter, split="val")
    text, info = env.reset(options={"task_id": task.id})
    local = asyncio.run(play(adapter, task, adapter.oracle(task), seed=0))
    assert (text, info["task_id"], info["admissible"]) == (local[0].text, task.id, local[0].admissible)
    for action, step in zip(adapter.oracle(task), local[1:], strict=True):
        text, reward, terminated, truncated, info = env.step(action)
        assert (text, reward, terminated, truncated) == (step.text, step.reward, step.terminated, step.truncated)
    assert info["success"]
    env.close()


def test_the_seed_draws_the_task_and_an_unknown_one_is_refused():
    env = to_gymnasium(registry.create("tinyguess", {}))
    ids = [env.reset(seed=seed)[1]["task_id"] for seed in (1, 2, 1)]
    assert ids[0] == ids[2] != ids[1]
    with pytest.raises(ConfigError, match="task_id='x'"):
        env.reset(options={"task_id": "x"})
    env.close()


def test_environments_of_gymnasium_keep_the_contract():
    lake = from_gymnasium("FrozenLake-v1", splits={"train": 20, "val": 10})
    assert check(lake, episodes=3) == []
    assert check(from_gymnasium("Speak-v0", splits={"train": 5, "val": 5}, rewards=(-1.0, 1.0)), episodes=2) == []


def test_a_task_is_a_seed_and_an_action_outside_the_space_changes_nothing():
    lake = from_gymnasium("FrozenLake-v1", splits={"train": 20}, settings={"is_slippery": False})
    task = lake.tasks("train")[0]
    steps = asyncio.run(play(lake, task, ["7", "down", " 2 ", "2", "1", "1", "1", "2"], seed=0))
    assert [step.text for step in steps[:5]] == ["0", "not an action", "not an action", "1", "2"]
    assert steps[0].admissible == ("0", "1", "2", "3")
    assert (steps[-1].text, steps[-1].reward, steps[-1].terminated, steps[-1].info["success"]) == (
        "15",
        1.0,
        True,
        True,
    )


def test_rewards_are_mapped_to_the_unit_interval_and_never_clipped():
    adapter = from_gymnasium("Speak-v0", splits={"train": 1}, rewards=(-1.0, 1.0), settings={"word": "hi"})
    task = adapter.tasks("train")[0]
    assert [s.reward for s in asyncio.run(play(adapter, task, ["no", "hi"], seed=0))] == [0.0, 0.0, 1.0]
    narrow = from_gymnasium("Speak-v0", splits={"train": 1})
    with pytest.raises(EnvError, match=r"reward -1\.0 is outside rewards=\(0\.0, 1\.0\)"):
        asyncio.run(play(narrow, task, ["no"], seed=0))


@pytest.mark.parametrize(
    ("env_id", "message"),
    [("NoSuch-v0", "Gymnasium cannot make it"), ("Pendulum-v1", "its actions are Box")],
)
def test_what_cannot_be_played_as_text_is_refused(env_id, message):
    with pytest.raises(ConfigError, match=message):
        from_gymnasium(env_id, splits={"train": 1})
