from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pools import ALFWORLD_TYPES, alfworld_by_type, pool

from envs.base import Task
from envs.partition import shard
from envs.partition.labels import read_labels
from flwr_agent.errors import ConfigError

ALFWORLD_TOTALS = [1706, 1400, 2206, 1475, 2324, 889]
"""Clean, heat, pick, cool, pick two, look: over 100 clients at omega = 0.01."""


def mixes(tasks: list[Task], omega: float, num_clients: int = 100) -> np.ndarray:
    category = {task.id: task.meta["category"] for task in tasks}
    order = list(dict.fromkeys(category.values()))
    counts = [
        Counter(
            category[i] for i in shard(tasks, c, num_clients, "preference", tasks_per_client=100, omega=omega).task_ids
        )
        for c in range(num_clients)
    ]
    return np.array([[count[name] for name in order] for count in counts])


def test_published_category_totals_of_the_household_games():
    assert mixes(alfworld_by_type(), 0.01).sum(axis=0).tolist() == ALFWORLD_TOTALS


def test_the_real_label_file_gives_the_published_totals_with_its_types_in_the_published_order(data_dir):
    """Totals depend on the order in which types are first seen, which in the file is another one."""
    ids = read_labels(data_dir / "hardness/alfworld_trajectories.json")
    tasks = [Task(i, "train", {"category": i.removeprefix("alfworld_").partition("-")[0]}) for i in ids]
    assert Counter(task.meta["category"] for task in tasks) == ALFWORLD_TYPES
    tasks.sort(key=lambda task: list(ALFWORLD_TYPES).index(task.meta["category"]))
    assert mixes(tasks, 0.01).sum(axis=0).tolist() == ALFWORLD_TOTALS


@settings(max_examples=30, deadline=None)
@given(st.floats(0, 1), st.integers(1, 60), st.integers(1, 6), st.integers(0, 30))
def test_a_shard_has_exactly_the_wanted_size_and_no_duplicates(omega, size, categories, client_id):
    tasks = pool(60, categories)
    ids = shard(tasks, client_id, 31, "preference", tasks_per_client=size, omega=omega).task_ids
    assert len(ids) == len(set(ids)) == size


def test_extreme_omega_gives_one_category_per_client():
    shares = mixes(pool(3000, 5), 1.0) / 100
    assert (shares.max(axis=1) == 1).mean() > 0.95
    assert (shares.sum(axis=0) > 5).all()


def test_a_category_that_would_drown_the_others_is_thinned():
    tasks = [Task(f"t{i}", "train", {"category": "fashion" if i % 2 else "garden"}) for i in range(4000)]
    garden, fashion = mixes(tasks, 0.01).sum(axis=0)
    assert fashion / (garden + fashion) == pytest.approx(0.2 / 1.2, abs=0.03)


def test_clients_draw_different_tasks():
    tasks = pool(3000, 5)
    shards = {shard(tasks, c, 20, "preference", tasks_per_client=100, omega=0.5).task_ids for c in range(20)}
    assert len(shards) == 20


@pytest.mark.parametrize("omega", [-1, 1.5, float("nan"), "much", True])
def test_omega_outside_its_range_is_refused(omega):
    with pytest.raises(ConfigError, match=r"partition\.omega=.*must be a number from 0 to 1"):
        shard(pool(20), 0, 2, "preference", tasks_per_client=5, omega=omega)


def test_more_tasks_than_thinning_leaves_are_refused():
    tasks = [Task(f"t{i}", "train", {"category": "fashion"}) for i in range(50)]
    with pytest.raises(ConfigError, match=r"partition\.tasks_per_client=11: .*preference keeps 10"):
        shard(tasks, 0, 2, "preference", tasks_per_client=11, omega=0.5)
