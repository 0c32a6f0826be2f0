"""The cross-evaluation matrix: every client's policy in every client's world."""

import json
from dataclasses import replace

import pytest
from letters import save_policy
from typer.testing import CliRunner

from flwr_agent.cli.app import app
from flwr_agent.config import resolve
from flwr_agent.cross import cross_evaluate
from flwr_agent.errors import ConfigError
from flwr_agent.requests import EvaluateRequest, TrainRequest
from flwr_agent.rl.learner import Learner, initial_arrays
from flwr_agent.world import to_adapter, to_shard

SETTINGS = {
    "env.name": "letters:Letters",
    "partition.strategy": "letters:letters",
    "federation.total_clients": 3,
    "federation.epochs_per_round": 2,
    "rollout.max_turns": 1,
    "rollout.max_new_tokens": 6,
    "algorithm.group_size": 4,
    "trainer.tasks_per_step": 4,
    "trainer.lr": 0.01,
}


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    return resolve(SETTINGS, {"model.path": save_policy(tmp_path_factory.mktemp("policy"))})


def test_each_policy_is_played_in_each_clients_own_world(config):
    said = []
    found = cross_evaluate(config, [0, 1, 2], 8, report=said.append)
    assert (found.clients, found.num_tasks, len(said)) == ([0, 1, 2], 8, 4)
    assert len(found.before) == len(found.after) == len(found.after[0]) == 3
    assert [row[2] for row in [found.before, *found.after]] == [0.0] * 4  # no policy says é
    assert found.before[0] > 0
    assert found == cross_evaluate(config, [0, 1, 2], 8)


def test_a_row_is_the_policy_that_the_client_would_send_back(config):
    found = cross_evaluate(config, [1], 6)
    learner, start = Learner(config), initial_arrays(config)
    tasks = {task.id: task for task in to_adapter(config).tasks("train")}
    shard = to_shard(config, list(tasks.values()), 1)
    request = TrainRequest(
        experiment="x", round=1, client_id=1, config=config, arrays=start, base_digest=learner.base_digest
    )
    sent = learner.train(request).arrays
    fresh = Learner(config)
    fresh.trainer.begin_round({name.removeprefix("actor/"): values for name, values in sent.items()}, prox_mu=0.0)
    sample = [tasks[i] for i in shard.task_ids]
    episodes = fresh.play(sample, purpose="cross", temperature=config.evaluation.temperature, shard=shard)
    won = {episode.task_id: episode.success for episode in episodes}
    assert found.after[0][0] * 6 <= sum(won.values())
    assert cross_evaluate(config, [1], 8).after[0][0] == sum(won.values()) / 8


def test_held_out_tasks_are_played_in_the_standard_world_whoever_trained_before(config):
    learner, start = Learner(config), initial_arrays(config)
    held_out = EvaluateRequest(experiment="x", round=0, config=config, arrays=start)
    before = learner.evaluate(held_out).outcomes
    assert sum(before["sampled/success"]) > 0
    learner.train(
        TrainRequest(experiment="x", round=1, client_id=2, config=config, arrays=start, base_digest=learner.base_digest)
    )
    assert learner.evaluate(held_out).outcomes == before
    alike = resolve(SETTINGS, {"model.path": config.model.path, "partition.strategy": "uniform"})
    assert Learner(alike).evaluate(replace(held_out, config=alike)).outcomes == before


def test_a_client_that_does_not_exist_is_refused(config):
    with pytest.raises(ConfigError, match=r"cross-clients=3: there are clients 0 to 2"):
        cross_evaluate(config, [0, 3], 4)


def test_the_command_adds_the_matrix_to_table_page_and_data(config, tmp_path):
    settings = [f"{key}={value}" for key, value in (SETTINGS | {"model.path": config.model.path}).items()]
    page, data = tmp_path / "lens.html", tmp_path / "lens.json"
    options = ["--html", str(page), "--json", str(data), "--cross-clients", "2", "--cross-tasks", "4"]
    done = CliRunner().invoke(app, ["partition", *settings, *options])
    assert done.exit_code == 0, done.output
    assert "nobody yet" in done.output
    assert "Cross-evaluation" in page.read_text()
    expected = cross_evaluate(config, [0, 1], 4)
    assert json.loads(data.read_text())["cross"]["after"] == expected.after
