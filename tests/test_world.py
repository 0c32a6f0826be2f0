"""A configuration names an environment, a client's tasks and its world."""

import pytest
from fakes import config

from envs import partition
from envs.base import View
from envs.registry import create
from flwr_agent.errors import ConfigError
from flwr_agent.world import to_adapter, to_shard


def test_the_environments_own_keys_and_the_prompt_style_reach_it():
    run = config(env__name="webshop", env__search_return_n=7, env__reward="upstream", prompt__style="paper")
    expected = create("webshop", {"search_return_n": 7, "reward": "upstream"}, style="paper")
    assert to_adapter(run).fingerprint() == expected.fingerprint()
    view = View("find me a hat", "Search", ("click[search]",))
    assert to_adapter(run).render(view) == expected.render(view)
    assert to_adapter(config(env__name="webshop")).fingerprint() != expected.fingerprint()


def test_an_environment_without_such_keys_gets_none_of_them():
    assert to_adapter(config(env__name="tinyguess", env__search_return_n=7)).name == "tinyguess"


@pytest.mark.parametrize(
    ("strategy", "knobs"),
    [("uniform", {"tasks_per_client": 60}), ("preference", {"tasks_per_client": 60, "omega": 0.9})],
)
def test_a_shard_is_the_partitions_for_the_clients_of_the_run(strategy, knobs):
    tasks = create("webshop", {}, style="compact").tasks("train")
    keys = {f"partition__{name}": value for name, value in knobs.items()}
    run = config(partition__strategy=strategy, federation__total_clients=5, **keys)
    for client_id in range(5):
        assert to_shard(run, tasks, client_id) == partition.shard(tasks, client_id, 5, strategy, **knobs)
    assert to_shard(run, tasks, 0) != to_shard(run, tasks, 1)


def test_a_clients_world_is_the_variant_of_its_shard():
    run = config(env__name="webshop", partition__strategy="catalog_split", federation__total_clients=3)
    standard = to_adapter(run)
    shard = to_shard(run, standard.tasks("train"), 1)
    assert shard.variant is not None
    assert to_adapter(run, shard.variant).fingerprint() != standard.fingerprint()


@pytest.mark.parametrize("keys", [{"env__name": "nowhere"}, {"env__name": "worlds:Nobody"}])
def test_an_environment_that_is_not_there_is_refused(keys):
    with pytest.raises(ConfigError, match=r"env\.name="):
        to_adapter(config(**keys))
