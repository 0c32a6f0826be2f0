"""Labels are played through the training's own rollout, in chunks that survive an end."""

import json

import pytest
from letters import NUM_TASKS, save_policy
from typer.testing import CliRunner

from envs.partition import shard
from envs.partition.labels import read_labels
from flwr_agent.cli.app import app
from flwr_agent.config import resolve
from flwr_agent.errors import ConfigError, DataError
from flwr_agent.rl import label as labelling
from flwr_agent.rl.learner import Learner
from flwr_agent.world import to_adapter

SETTINGS = {"env.name": "letters:Letters", "rollout.max_turns": 2, "rollout.max_new_tokens": 6}


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    return resolve(SETTINGS, {"model.path": save_policy(tmp_path_factory.mktemp("policy"))})


def label(config, out, *, chunk=5, temperature=0.0):
    steps = []
    metadata = labelling.label(
        config, out, temperature=temperature, chunk=chunk, report=lambda *done: steps.append(done)
    )
    return metadata, steps


def test_every_training_task_is_labelled_once_and_the_partition_reads_it(config, tmp_path):
    out = tmp_path / "new" / "labels.json"
    metadata, steps = label(config, out)
    labels = read_labels(out)
    tasks = to_adapter(config).tasks("train")
    assert list(labels) == [task.id for task in tasks]
    assert steps == [(0, 24), (5, 24), (10, 24), (15, 24), (20, 24), (24, 24)]
    assert (metadata["total_trajectories"], metadata["successes"]) == (NUM_TASKS, sum(labels.values()))
    assert 0 < sum(labels.values()) < NUM_TASKS
    assert not list(out.parent.glob("*.part"))
    knobs = {"tasks_per_client": 4, "success_std": 256.0, "trajectories_file": str(out)}
    shards = [shard(tasks, c, 3, "hardness", **knobs) for c in range(3)]
    assert sum(labels[i] for one in shards for i in one.task_ids) == 3 * 4 // 2


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_label_is_what_the_learners_own_rollout_does_whatever_the_chunk(config, tmp_path, temperature):
    found = [label(config, tmp_path / f"{chunk}.json", chunk=chunk, temperature=temperature)[0] for chunk in (3, 24)]
    assert found[0] == found[1]
    labels = read_labels(tmp_path / "3.json")
    assert labels == read_labels(tmp_path / "24.json")
    tasks = to_adapter(config).tasks("train")
    episodes = Learner(config).play(tasks, purpose="labels", temperature=temperature)
    assert labels == {episode.task_id: episode.success for episode in episodes}
    assert found[0]["rollout"]["mode"] == config.rollout.mode


def test_a_call_that_ends_goes_on_from_its_last_chunk(config, tmp_path, monkeypatch):
    whole, out = tmp_path / "whole.json", tmp_path / "labels.json"
    label(config, whole)
    play, played = Learner.play, []

    def dying(self, tasks, **settings):
        if len(played) == 10:
            raise KeyboardInterrupt
        played.extend(task.id for task in tasks)
        return play(self, tasks, **settings)

    monkeypatch.setattr(Learner, "play", dying)
    with pytest.raises(KeyboardInterrupt):
        label(config, out)
    part = out.with_name("labels.json.part")
    with part.open("a") as file:
        file.write('["train-10", tr')
    monkeypatch.setattr(Learner, "play", play)
    _, steps = label(config, out)
    assert steps[0] == (10, 24)
    assert out.read_bytes() == whole.read_bytes()


def test_what_another_policy_began_is_not_gone_on_with(config, tmp_path):
    out = tmp_path / "labels.json"
    out.with_name("labels.json.part").write_text(json.dumps({"policy": "another"}) + "\n")
    with pytest.raises(ConfigError, match=r"out='.*labels\.json\.part': was begun with another policy"):
        label(config, out)


@pytest.mark.parametrize("text", ["", "mine", "mine\n", "{}\n[1]\n"])
def test_a_file_of_somebody_elses_in_the_way_is_named_and_stays(config, tmp_path, text):
    part = tmp_path / "labels.json.part"
    part.write_text(text)
    with pytest.raises(DataError, match=r"labels\.json\.part: lines: holds no labels"):
        label(config, tmp_path / "labels.json")
    assert part.read_text() == text


def test_a_task_whose_environment_fails_gets_no_label(config, tmp_path, monkeypatch):
    from letters import Letters, LettersEnv

    monkeypatch.setattr(Letters, "make", lambda self: LettersEnv("!"))
    metadata, _ = label(config, tmp_path / "labels.json")
    assert metadata["env_errors"] == 1
    assert "train-13" not in read_labels(tmp_path / "labels.json")


def test_the_command_writes_the_file_and_says_how_many_were_solved(config, tmp_path):
    out = tmp_path / "labels.json"
    arguments = [f"{key}={value}" for key, value in SETTINGS.items()]
    done = CliRunner().invoke(app, ["labels", *arguments, "--model", config.model.path, "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert "24 of 24 tasks played" in done.output
    assert f"24 tasks labelled, {sum(read_labels(out).values()) / 24:.1%} solved" in done.output.replace("\n", " ")
    with pytest.raises(ConfigError, match=r"model\.path"):
        CliRunner().invoke(app, ["labels", "--model", "./absent", "--out", str(out)], catch_exceptions=False)
