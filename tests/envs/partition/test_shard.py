from importlib.metadata import EntryPoint

import pytest

from envs.base import Shard, Task
from envs.partition import knobs, registry, shard
from flwr_agent.config import KEYS
from flwr_agent.errors import ConfigError
from flwr_agent.paths import ROOT

TASKS = [Task(f"t{i}", "train", {"category": "ab"[i % 2]}) for i in range(20)]


def test_unknown_strategy_is_refused_with_the_nearest_name():
    with pytest.raises(ConfigError, match=r"partition\.strategy='unifrom'.*did you mean 'uniform'"):
        shard(TASKS, 0, 2, "unifrom", tasks_per_client=5)


def test_a_knob_of_another_strategy_is_refused():
    with pytest.raises(ConfigError, match=r"partition\.omega=0\.5: strategy uniform does not use it"):
        shard(TASKS, 0, 2, "uniform", tasks_per_client=5, omega=0.5)


def test_a_missing_knob_is_refused():
    with pytest.raises(ConfigError, match=r"partition\.tasks_per_client.*needs a value"):
        shard(TASKS, 0, 2, "uniform")


@pytest.mark.parametrize("client_id", [-1, 2])
def test_a_client_that_does_not_exist_is_refused(client_id):
    with pytest.raises(ConfigError, match="client_id"):
        shard(TASKS, client_id, 2, "uniform", tasks_per_client=5)


def test_knobs_are_read_from_the_signature():
    assert knobs("uniform") == {"tasks_per_client"}


@pytest.mark.parametrize("strategy", registry.STRATEGIES)
def test_every_knob_of_every_strategy_is_a_configuration_key(strategy):
    assert {f"partition.{knob}" for knob in knobs(strategy)} <= set(KEYS)


def halves(tasks, client_id, num_clients, *, seed, share=0.5):
    cut = int(len(tasks) * share)
    return Shard(client_id, tuple(t.id for t in (tasks[:cut], tasks[cut:])[client_id]))


def twice(tasks, client_id, num_clients, *, seed):
    return Shard(client_id, (tasks[0].id, tasks[0].id))


def failing(tasks, client_id, num_clients, *, seed):
    raise KeyError("x")


def empty(tasks, client_id, num_clients, *, seed):
    return Shard(client_id, ())


def test_a_third_partys_function_is_named_by_module_and_function():
    name = f"{__name__}:halves"
    assert knobs(name) == {"share"}
    assert len(shard(TASKS, 0, 2, name).task_ids) == 10
    assert len(shard(TASKS, 1, 2, name, share=0.25).task_ids) == 15


def test_a_third_partys_function_is_found_by_entry_point(monkeypatch):
    point = EntryPoint("halves", f"{__name__}:halves", registry.GROUP)
    monkeypatch.setattr(registry, "entry_points", lambda *, group: [point] if group == registry.GROUP else [])
    assert shard(TASKS, 1, 2, "halves").task_ids == tuple(f"t{i}" for i in range(10, 20))


@pytest.mark.parametrize(
    ("function", "fault"),
    [
        ("twice", "more often"),
        ("empty", "no task"),
        ("absent", "has no 'absent'"),
        ("TASKS", "not a function"),
        ("failing", "KeyError: 'x' .*test_shard.py:"),
    ],
)
def test_a_broken_third_party_is_refused_by_name(function, fault):
    with pytest.raises(ConfigError, match=fault):
        shard(TASKS, 0, 2, f"{__name__}:{function}")


def test_the_documented_strategy_of_your_own_runs(tmp_path, monkeypatch):
    page = (ROOT / "docs/partitions.md").read_text(encoding="utf-8")
    source = page.partition("```python\n")[2].partition("```")[0]
    assert len(source.splitlines()) < 40
    (tmp_path / "my_partitions.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    mine = shard(TASKS, 1, 2, "my_partitions:by_parity", tasks_per_client=3)
    assert mine == Shard(1, ("t1", "t3", "t5"))
