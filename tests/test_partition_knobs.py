"""Every knob of every strategy reaches what it is about: configuration key -> shard -> the client's world."""

import json

import pytest

from envs.partition import knobs
from envs.partition.registry import STRATEGIES
from envs.webshop import WebShop
from flwr_agent import presets
from flwr_agent.cli import overrides
from flwr_agent.config import resolve
from flwr_agent.world import to_adapter, to_shard, to_world

NUM_CLIENTS = 12
GUESS, HOUSE, SHOP = "tinyguess", "minihouse", "webshop"
SIZES = ("tasks_per_client", "700", "800")
"""Above `tasks / clients` in every environment, so that a shard has exactly this size."""
TABLE = {
    "uniform": (GUESS, [SIZES]),
    "task_disjoint": (GUESS, [SIZES]),
    "preference": (GUESS, [SIZES, ("omega", "0.1", "0.9")]),
    "coverage": (
        GUESS,
        [("tasks_per_client", "90", "100"), ("size_std", "1", "256"), ("size_mean", "400", "500"), ("size_max", "900", "1000")],
    ),
    "hardness": (GUESS, [SIZES, ("success_std", "1", "256"), ("trajectories_file", "first.json", "second.json")]),
    "catalog_split": (SHOP, [SIZES, ("env_div", "0", "1"), ("keep_ratio", "0.5", "0.9")]),
    "scene_disjoint": (HOUSE, [("tasks_per_client", "50", "60"), ("env_div", "0", "1"), ("scenes_per_client", "8", "12")]),
    **{
        arm: (SHOP, [SIZES, ("variant_n", "2", "4")])
        for arm in ("bm25_field_subset", "bm25_reweight", "lookalike", "rank_wrapper")
    },
    **{arm: (HOUSE, [SIZES, ("variant_n", "2", "4")]) for arm in ("obs_variant", "dyn_variant", "goal_variant")},
}  # fmt: skip
"""Strategy -> environment, and (knob, one value, another)."""
CASES = [(strategy, env, *case) for strategy, (env, cases) in TABLE.items() for case in cases]


def test_the_table_names_every_knob_of_every_strategy():
    assert {(case[0], case[2]) for case in CASES} == {(name, knob) for name in STRATEGIES for knob in knobs(name)}


@pytest.fixture
def labels(tmp_path, monkeypatch):
    """Two label files in the working directory: odd tasks are easy, or those below 2,000."""
    for name, is_easy in (("first.json", lambda n: n % 2 == 1), ("second.json", lambda n: n < 2000)):
        rows = [
            {"task_info": {"task_id": f"guess-train-{n}"}, "traj_info": {"success": is_easy(n)}} for n in range(4000)
        ]
        (tmp_path / name).write_text(json.dumps({"trajectories": rows}))
    monkeypatch.chdir(tmp_path)


def federation(strategy: str, env: str, knob: str, value: str) -> tuple[list, list[str]]:
    """Shards and fingerprints of the worlds of a federation whose knob came as a command-line argument."""
    files = [] if strategy != "hardness" else ["partition.trajectories_file=first.json"]
    arguments = [f"env.name={env}", f"partition.strategy={strategy}", f"federation.total_clients={NUM_CLIENTS}", *files]
    config = resolve(overrides.parse([*arguments, f"partition.{knob}={value}"]))
    tasks = to_adapter(config).tasks("train")
    shards = [to_shard(config, tasks, client) for client in range(NUM_CLIENTS)]
    return shards, [to_world(config, shard).fingerprint() for shard in shards]


@pytest.mark.parametrize(("strategy", "env", "knob", "one", "other"), CASES)
def test_a_knob_arrives(strategy, env, knob, one, other, labels):
    (shards, worlds), (other_shards, other_worlds) = (federation(strategy, env, knob, value) for value in (one, other))
    assert shards != other_shards
    if knob == "tasks_per_client":
        assert [len(shard.task_ids) for shard in shards] != [len(shard.task_ids) for shard in other_shards]
    if knob in ("keep_ratio", "variant_n") or (knob, env) == ("env_div", SHOP):
        assert [shard.task_ids for shard in shards] == [shard.task_ids for shard in other_shards]
        assert worlds != other_worlds


@pytest.mark.parametrize("name", presets.names())
def test_worlds_of_the_shop_are_searched_to_a_depth_that_the_preset_states(name):
    config = presets.load({"preset": name})
    stated = presets.parse(presets.CONF / f"{name}.yaml")
    is_arm = config.env.name == "webshop" and TABLE.get(config.partition.strategy, ("",))[0] == SHOP
    assert config.env.search_return_n == (200 if is_arm else 50)
    assert ("env.search_return_n" in stated) or not is_arm
    assert config.env.val_search_return_n == 50


def test_every_arm_of_the_shop_has_a_preset():
    named = {presets.load({"preset": name}).partition.strategy for name in presets.names()}
    assert {strategy for strategy, (env, _) in TABLE.items() if env == SHOP} <= named


def test_targets_of_a_split_catalogue_follow_the_served_goals_in_whatever_order_they_are_served():
    config = resolve({"partition.strategy": "catalog_split", "federation.total_clients": NUM_CLIENTS})
    served = WebShop().tasks("train")
    for order in (served, served[::-1], served[1000:] + served[:1000]):
        shard = to_shard(config, order, 3)
        asins = {task.meta["asin"] for task in order if task.id in set(shard.task_ids)}
        assert set(shard.variant.params["targets"]) == asins <= to_world(config, shard).world.on_sale
