import pytest

from envs.base import Shard, Task
from envs.partition import knobs
from envs.partition.registry import STRATEGIES
from flwr_agent.config import KEYS, resolve
from flwr_agent.errors import ConfigError
from flwr_agent.shards import check_partition, client_shard

TASKS = [Task(f"t{i}", "train", {"category": "ab"[i % 2], "asin": f"B{i % 9}", "scene": i % 9}) for i in range(200)]
VALUES = {
    "tasks_per_client": 7,
    "omega": 0.9,
    "size_std": 2.0,
    "size_mean": 15,
    "size_max": 30,
    "success_std": 2.0,
    "trajectories_file": "labels.json",
    "env_div": 0.1,
    "keep_ratio": 0.2,
    "variant_n": 3,
    "scenes_per_client": 5,
}


def spy(tasks, client_id, num_clients, *, seed, own="third party", tasks_per_client, omega):
    spy.seen = {"seed": seed, "own": own, "tasks_per_client": tasks_per_client, "omega": omega, "clients": num_clients}
    return Shard(client_id, (tasks[0].id,))


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_knob_of_every_strategy_is_a_configuration_key(strategy):
    assert {f"partition.{knob}" for knob in knobs(strategy)} <= set(KEYS)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_key_that_the_strategy_does_not_use_is_refused_and_one_that_it_uses_is_not(strategy):
    for knob, value in VALUES.items():
        config = resolve({"partition.strategy": strategy, f"partition.{knob}": value})
        if knob in knobs(strategy):
            check_partition(config)
        else:
            with pytest.raises(ConfigError, match=rf"partition\.{knob}=.*{strategy} does not use it.*tasks_per_client"):
                check_partition(config)


def test_configured_values_reach_the_strategy_and_the_runs_seed_does_not():
    name = f"{__name__}:spy"
    config = resolve({"partition.strategy": name, "partition.omega": 0.9, "partition.tasks_per_client": 7, "seed": 5})
    assert client_shard(config, TASKS, 1) == Shard(1, ("t0",))
    assert spy.seen == {"seed": 42, "own": "third party", "tasks_per_client": 7, "omega": 0.9, "clients": 2}


def test_the_defaults_give_a_shard():
    assert len(client_shard(resolve(), TASKS, 1).task_ids) == 100
    check_partition(resolve())
