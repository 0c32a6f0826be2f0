"""A run's policy plays an episode for people to read: the one its own rollout would play."""

import json

import pytest
from letters import save_policy
from typer.testing import CliRunner

from flwr_agent.__main__ import _load_model
from flwr_agent.arrays import digest
from flwr_agent.cli.app import app
from flwr_agent.cli.parts import Parts
from flwr_agent.config import resolve
from flwr_agent.rl.learner import Learner, initial_arrays
from flwr_agent.rl.show import show
from flwr_agent.world import to_adapter
from server_app import checkpoint

SETTINGS = {"env.name": "letters:Letters", "rollout.max_turns": 2, "rollout.max_new_tokens": 6}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The folder of a run of no round, and its configuration."""
    folder = tmp_path_factory.mktemp("run")
    config = resolve(SETTINGS, {"model.path": save_policy(tmp_path_factory.mktemp("policy"))})
    arrays = initial_arrays(config)
    state = checkpoint.RunState(round=0, arrays=arrays, digest=digest(arrays), base_digest="", experiment="x")
    checkpoint.save(folder, state, config)
    (folder / "config.json").write_text(json.dumps({"config": config.flat()}))
    return folder, config


def test_the_episode_is_the_one_that_the_learner_plays(run):
    folder, config = run
    adapter = to_adapter(config)
    task = adapter.tasks("val")[0]
    steps, answers = show(config, checkpoint.kept(folder).arrays, adapter, task, temperature=0.0)
    [episode] = Learner(config).play([task], purpose="any, greedy answers draw nothing", temperature=0.0)
    assert len(answers) == len(episode.turns) == len(steps) - 1
    assert sum(step.reward for step in steps) == episode.score
    assert bool(steps[-1].info["success"]) == episode.success


def test_play_shows_every_turn_of_the_policy(run):
    folder, _ = run
    parts = Parts(load_strategy=lambda _: None, load_model=_load_model, rebuild=lambda _: [])
    done = CliRunner().invoke(app, ["play", "letters:Letters", "--model", str(folder)], obj=parts)
    assert done.exit_code == 0, done.exception
    assert f"policy of round 0 of {folder}" in done.output.replace("\n", "")
    assert "> " in done.output
    assert "reward" in done.output.splitlines()[-1]
