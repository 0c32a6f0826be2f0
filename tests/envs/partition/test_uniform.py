from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envs.base import Task
from envs.partition import shard
from envs.partition.uniform import slice_of
from flwr_agent.errors import ConfigError


def test_published_slices_of_6410_tasks_over_100_clients():
    assert [slice_of(6410, c, 100, 100) for c in (0, 1, 99)] == [range(100), range(46, 146), range(6310, 6410)]
    inner = [slice_of(6410, c, 100, 100) for c in range(1, 98)]
    assert all(len(set(a) & set(b)) == 36 for a, b in pairwise(inner))


@given(st.integers(1, 400), st.data())
def test_every_slice_is_inside_the_pool_and_as_long_as_promised(num_tasks, data):
    num_clients = data.draw(st.integers(1, 50))
    at_least = data.draw(st.integers(1, num_tasks))
    for client in range(num_clients):
        part = slice_of(num_tasks, client, num_clients, at_least)
        assert 0 <= part.start < part.stop <= num_tasks
        assert len(part) == max(at_least, num_tasks // num_clients)


@given(st.integers(1, 400), st.integers(1, 20))
def test_slices_are_disjoint_when_there_are_enough_tasks(num_tasks, num_clients):
    base = num_tasks // num_clients
    if base:
        held = [i for c in range(num_clients) for i in slice_of(num_tasks, c, num_clients, base)]
        assert held == list(range(base * num_clients))


def test_one_client_holds_the_whole_pool():
    tasks = [Task(f"t{i}", "train") for i in range(7)]
    assert shard(tasks, 0, 1, "uniform", tasks_per_client=1).task_ids == tuple(f"t{i}" for i in range(7))


@pytest.mark.parametrize("count", [0, 8, 2.0, True])
def test_tasks_per_client_beyond_the_pool_is_refused(count):
    tasks = [Task(f"t{i}", "train") for i in range(7)]
    with pytest.raises(ConfigError, match=r"partition\.tasks_per_client=.*from 1 to 7 \(the environment has 7"):
        shard(tasks, 0, 2, "uniform", tasks_per_client=count)
