import numpy as np
import pytest
from pools import pool

from envs.partition import shard
from envs.partition.coverage import holdings
from flwr_agent.errors import ConfigError

TASKS = pool(6410)
KNOBS = {"tasks_per_client": 100, "size_std": 1.0}


@pytest.mark.parametrize("size_std", [1.0, 256.0])
def test_the_union_of_all_shards_is_the_pool(size_std):
    held = holdings(6410, 100, (100, 500, 1000), size_std, 42)
    assert held.any(axis=0).all()
    assert held.sum() == 50_000


def test_a_client_gets_the_published_size_and_tasks():
    ids = shard(TASKS, 0, 100, "coverage", **KNOBS).task_ids
    assert len(ids) == len(set(ids)) == 839
    assert ids[:5] == ("t3", "t7", "t10", "t18", "t24")


def test_a_shard_does_not_depend_on_who_else_was_computed_before():
    alone = shard(TASKS, 7, 100, "coverage", **KNOBS)
    holdings.cache_clear()
    shard(TASKS, 3, 100, "coverage", **KNOBS)
    assert shard(TASKS, 7, 100, "coverage", **KNOBS) == alone


def test_another_seed_is_another_federation():
    assert shard(TASKS, 0, 100, "coverage", seed=1, **KNOBS) != shard(TASKS, 0, 100, "coverage", **KNOBS)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"size_std": 0}, r"partition\.size_std=0: must be a number"),
        ({"size_std": True}, r"partition\.size_std=True"),
        ({"size_max": 7000}, r"partition\.size_max=7000: .* 101 to 6410 \(above .*has 6410 training tasks"),
        ({"size_max": 100}, r"partition\.size_max=100"),
        ({"size_mean": 99}, r"partition\.size_mean=99: .*100 to 1000"),
    ],
)
def test_sizes_that_contradict_each_other_are_refused(bad, message):
    with pytest.raises(ConfigError, match=message):
        shard(TASKS, 0, 100, "coverage", **(KNOBS | bad))


def test_shards_are_sorted_by_the_canonical_order():
    ids = shard(TASKS, 1, 100, "coverage", **KNOBS).task_ids
    assert (np.diff([int(i[1:]) for i in ids]) > 0).all()
