import logging

import numpy as np
import pytest
from pools import labels_file, pool

from envs.base import Task
from envs.partition import shard
from envs.partition.hardness import holdings
from envs.partition.labels import read_labels
from flwr_agent.errors import ConfigError, DataError

EASY = np.arange(6410) < 1780
SHARES_AT_1 = [0.86, 0.04, 0.11, 0.18, 0.90, 1, 0.93, 1, 1, 0.08, 0.50, 0.97]


@pytest.mark.parametrize(("success_std", "distinct_fills"), [(1.0, 81), (256.0, 100)])
def test_published_quotas_coverage_and_hard_fills(success_std, distinct_fills):
    held = holdings(EASY.tobytes(), 100, 100, success_std, 42)
    assert (held.sum(axis=1) == 100).all()
    assert held[:, EASY].sum() == 5000
    assert held[:, EASY].any(axis=0).all()
    assert len({row.tobytes() for row in held[:, ~EASY]}) == distinct_fills


def test_published_easy_shares_at_concentration_1():
    held = holdings(EASY.tobytes(), 100, 100, 1.0, 42)
    assert (held[:, EASY].sum(axis=1) / 100)[:12].tolist() == SHARES_AT_1


def test_clients_of_equal_quota_hold_different_hard_tasks():
    held = holdings(EASY.tobytes(), 100, 100, 256.0, 42)
    quotas, fills = held[:, EASY].sum(axis=1), held[:, ~EASY]
    first, second = np.flatnonzero(quotas == np.bincount(quotas).argmax())[:2]
    assert (fills[first] & fills[second]).sum() < 0.5 * fills[first].sum()


def test_a_real_label_file_meets_the_quotas_with_every_easy_task_held(data_dir):
    path = data_dir / "hardness/alfworld_trajectories.json"
    labels = read_labels(path)
    tasks = [Task(i, "train", {"category": "any"}) for i in labels]
    assert (len(labels), sum(labels.values())) == (3553, 2112)
    knobs = {"tasks_per_client": 100, "success_std": 1.0, "trajectories_file": str(path)}
    shards = [shard(tasks, c, 100, "hardness", **knobs).task_ids for c in range(100)]
    assert [sum(labels[i] for i in ids) / 100 for ids in shards][:12] == SHARES_AT_1
    assert {i for ids in shards for i in ids if labels[i]} == {i for i, easy in labels.items() if easy}


def test_tasks_without_a_label_count_as_hard_and_are_warned_about(tmp_path, caplog):
    path = labels_file(tmp_path, {f"t{i}": True for i in range(15)})
    with caplog.at_level(logging.WARNING):
        ids = [
            shard(pool(40), c, 4, "hardness", tasks_per_client=10, success_std=9.0, trajectories_file=path).task_ids
            for c in range(4)
        ]
    easy = {f"t{i}" for i in range(15)}
    assert sum(len(easy & set(mine)) for mine in ids) == 4 * 10 // 2
    assert "25 of 40 tasks have no success label and count as hard; the labels are stale" in caplog.text


def test_quotas_beyond_the_labelled_tasks_are_refused(tmp_path):
    path = labels_file(tmp_path, {f"t{i}": i < 3 for i in range(40)})
    with pytest.raises(ConfigError, match=r"partition\.tasks_per_client=10: one client's quota is \d+ easy tasks and"):
        shard(pool(40), 0, 4, "hardness", tasks_per_client=10, success_std=1.0, trajectories_file=path)


@pytest.mark.parametrize("size", [1, 41])
def test_a_shard_too_small_or_too_large_to_be_half_easy_is_refused(tmp_path, size):
    path = labels_file(tmp_path, {f"t{i}": True for i in range(20)})
    with pytest.raises(ConfigError, match=r"partition\.tasks_per_client=.*from 2 to 40 \(half of a client's tasks"):
        shard(pool(40), 0, 4, "hardness", tasks_per_client=size, success_std=1.0, trajectories_file=path)


def test_the_last_label_of_a_task_counts(tmp_path):
    path = tmp_path / "l.json"
    row = '{{"task_info": {{"task_id": "a"}}, "traj_info": {{"success": {}}}}}'
    path.write_text(f'{{"trajectories": [{row.format("true")}, {row.format("false")}]}}')
    assert read_labels(path) == {"a": False}


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        ("{", "content: is not JSON"),
        ("[]", "trajectories: must be a list"),
        ('{"trajectories": [{}]}', r"trajectories\[0\]: needs task_info.task_id and traj_info.success"),
        ('{"trajectories": [{"task_info": {"task_id": 3}, "traj_info": {"success": true}}]}', "must be a string"),
        ('{"trajectories": [{"task_info": {"task_id": "a"}, "traj_info": {"success": 1}}]}', "must be true or false"),
    ],
)
def test_a_malformed_label_file_is_refused_by_field(tmp_path, content, fault):
    path = tmp_path / "labels.json"
    path.write_text(content)
    with pytest.raises(DataError, match=rf"labels\.json: .*{fault}"):
        read_labels(path)


def test_a_missing_label_file_is_refused_with_the_key_to_set(tmp_path):
    with pytest.raises(DataError, match=r"absent\.json: file: .*set partition\.trajectories_file"):
        read_labels(tmp_path / "absent.json")
