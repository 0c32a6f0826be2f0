import json
from collections import Counter

import pytest
from pools import pool

from envs.base import Task
from envs.partition import shard
from envs.partition.variants import assigned
from flwr_agent.errors import ConfigError

TASKS = [Task(f"t{i}", "train", {"category": "c", "asin": f"B{i % 60}"}) for i in range(300)]
POOLS = {
    "bm25_field_subset": (8, 4),
    "bm25_reweight": (8, 4),
    "lookalike": (4, 2),
    "rank_wrapper": (4, 4),
    "obs_variant": (4, 4),
    "dyn_variant": (4, 4),
    "goal_variant": (4, 4),
}
"""Strategy -> (worlds it has, worlds in use at variant_n 0)."""


def test_published_assignment_of_100_clients():
    four = [assigned(c, 4, 42) for c in range(100)]
    two = [assigned(c, 2, 42) for c in range(100)]
    assert four[:4] == [2, 0, 0, 3]
    assert [Counter(four)[j] for j in range(4)] == [21, 19, 33, 27]
    assert [Counter(two)[j] for j in range(2)] == [54, 46]
    assert two[:2] == [0, 0]


@pytest.mark.parametrize("strategy", POOLS)
def test_an_arm_keeps_the_tasks_of_uniform_and_describes_its_world_in_full(strategy):
    worlds, default = POOLS[strategy]
    seen = set()
    for client in range(60):
        mine = shard(TASKS, client, 60, strategy, tasks_per_client=10, variant_n=worlds)
        assert mine.task_ids == shard(TASKS, client, 60, "uniform", tasks_per_client=10).task_ids
        assert mine.variant.name == strategy
        assert json.loads(json.dumps(mine.variant.params)) == mine.variant.params
        seen.add(mine.variant.params["index"])
    assert seen == set(range(worlds))
    indices = {
        shard(TASKS, c, 60, strategy, tasks_per_client=10, variant_n=0).variant.params["index"] for c in range(60)
    }
    assert indices == set(range(default))


@pytest.mark.parametrize("strategy", POOLS)
@pytest.mark.parametrize("count", [1, 9, -1, 2.0, False])
def test_more_worlds_than_an_arm_has_are_refused(strategy, count):
    with pytest.raises(ConfigError, match=r"partition\.variant_n=.*from 2 to \d \(or 0, which means \d\)"):
        shard(TASKS, 0, 2, strategy, tasks_per_client=10, variant_n=count)


def test_each_client_reranks_with_its_own_stream():
    seeds = [
        shard(TASKS, c, 5, "rank_wrapper", tasks_per_client=10, variant_n=4).variant.params["rank_seed"]
        for c in range(5)
    ]
    assert seeds == [42, 43, 44, 45, 46]


def test_the_control_arm_has_the_same_tasks_and_the_standard_world():
    split = shard(TASKS, 3, 5, "catalog_split", tasks_per_client=10, env_div=0.7, keep_ratio=0.7)
    control = shard(TASKS, 3, 5, "task_disjoint", tasks_per_client=10)
    assert control.task_ids == split.task_ids
    assert control.variant is None


def test_an_environment_without_products_or_scenes_is_refused():
    with pytest.raises(ConfigError, match="no product"):
        shard(pool(30), 0, 2, "catalog_split", tasks_per_client=5, env_div=0.7, keep_ratio=0.7)
    with pytest.raises(ConfigError, match="no numbered scene"):
        shard(pool(30), 0, 2, "scene_disjoint", tasks_per_client=5, env_div=0.7, scenes_per_client=8)
