"""Partitions that cannot work end with one line that names the key, before any client starts."""

import json
from pathlib import Path

import pytest

import strategies
from envs.base import Shard, Task, Variant
from envs.webshop import WebShop, catalogue
from envs.webshop.files import HUMAN
from flwr_agent.cli.run import plan
from flwr_agent.errors import ConfigError

GUESS, HOUSE, SHOP = ("env.name=tinyguess",), ("env.name=minihouse",), ("env.name=webshop",)
ENVIRONMENTS = {"tinyguess": 4000, "minihouse": 3600}
"""Environment -> its training tasks."""


class Countdown:
    """A third party's plain environment, which has no variants."""

    def tasks(self, split):
        return [Task(f"{split}-{n}", split, {"category": "any"}) for n in range(40)]

    def reset(self, task, seed):
        return "go"

    def step(self, action):
        return "end", 1.0, True, False, {}


def unserved(tasks, client_id, num_clients, *, seed):
    """A split catalogue that forgets the targets of its last client."""
    targets = [] if client_id == num_clients - 1 else sorted({task.meta["asin"] for task in tasks})
    params = {"client_id": client_id, "seed": seed, "env_div": 1.0, "keep_ratio": 0.1, "targets": targets}
    return Shard(client_id, tuple(task.id for task in tasks[:50]), Variant("catalog_split", params))


def refusal(*arguments: str) -> str:
    with pytest.raises(ConfigError) as caught:
        plan("", arguments, base=Path.cwd(), load_strategy=strategies.load)
    text = str(caught.value)
    assert "\n" not in text
    return text


def arm(strategy: str, *knobs: str) -> tuple[str, ...]:
    return (f"partition.strategy={strategy}", *(f"partition.{knob}" for knob in knobs))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (GUESS + arm("preference", "omega=-1"), "partition.omega=-1.0: must be at least 0"),
        (GUESS + arm("preference", "omega=1.5"), "partition.omega=1.5: must be at most 1"),
        (SHOP + arm("catalog_split", "env_div=2"), "partition.env_div=2.0: must be at most 1"),
        (HOUSE + arm("scene_disjoint", "env_div=2"), "partition.env_div=2.0: must be at most 1"),
        (SHOP + arm("catalog_split", "keep_ratio=1.1"), "partition.keep_ratio=1.1: must be at most 1"),
        (GUESS + arm("coverage", "size_std=0"), "partition.size_std=0.0: must be at least 0.001"),
        (GUESS + arm("coverage", "size_mean=5"), "partition.size_mean=5: must be a whole number from 100 to 1000"),
        (GUESS + arm("coverage", "size_max=9000"), "partition.size_max=9000: must be a whole number from"),
        (GUESS + arm("hardness", "success_std=0"), "partition.success_std=0.0: must be at least 0.001"),
        (HOUSE + arm("scene_disjoint", "scenes_per_client=900"), "partition.scenes_per_client=900: must be a whole"),
        (HOUSE + arm("scene_disjoint", "scenes_per_client=1"), "partition.scenes_per_client=1: client "),
        (SHOP + arm("rank_wrapper", "variant_n=9"), "partition.variant_n=9: must be a whole number from 2 to 4"),
        (HOUSE + arm("goal_variant", "variant_n=1"), "partition.variant_n=1: must be a whole number from 2 to 4"),
        (SHOP + arm("lookalike", "variant_n=-1"), "partition.variant_n=-1: must be at least 0"),
        (GUESS + arm("unifrom"), "partition.strategy='unifrom': no such strategy"),
        (GUESS + arm("uniform", "omega=0.5"), "partition.omega=0.5: uniform does not use this key"),
        (GUESS + arm("hardness"), "partition.trajectories_file='none': no such file; hardness needs success labels"),
        (
            GUESS + arm("hardness", "trajectories_file=absent.json"),
            "partition.trajectories_file='absent.json': no such",
        ),
        (GUESS + arm("uniform", "tasks_per_client=0"), "partition.tasks_per_client=0: must be at least 1"),
    ],
)
def test_a_knob_that_cannot_be_is_refused_by_its_key(arguments, message):
    assert refusal(*arguments).startswith(message)


@pytest.mark.parametrize("name", ENVIRONMENTS)
@pytest.mark.parametrize("strategy", ["uniform", "preference", "coverage", "task_disjoint"])
def test_more_tasks_per_client_than_exist_are_refused(name, strategy):
    too_many = ENVIRONMENTS[name] + 1
    text = refusal(f"env.name={name}", *arm(strategy, f"tasks_per_client={too_many}"))
    assert text.startswith(f"partition.tasks_per_client={too_many}: must be a whole number")
    assert f"has {ENVIRONMENTS[name]} training tasks" in text


@pytest.mark.parametrize(
    ("environment", "strategies", "reason"),
    [
        (GUESS, ["lookalike", "rank_wrapper", "obs_variant", "goal_variant"], "has no variants"),
        (GUESS, ["catalog_split"], "name no product"),
        (GUESS, ["scene_disjoint"], "no numbered scene"),
        (HOUSE, ["bm25_reweight", "bm25_field_subset", "lookalike", "rank_wrapper"], "no such variant"),
        (HOUSE, ["catalog_split"], "name no product"),
        (SHOP, ["obs_variant", "dyn_variant", "goal_variant"], "no such variant"),
        (SHOP, ["scene_disjoint"], "no numbered scene"),
        (
            (f"env.name={__name__}:Countdown", "partition.tasks_per_client=5", "evaluation.tasks=5"),
            ["dyn_variant"],
            "has no variants",
        ),
    ],
)
def test_a_variant_that_the_environment_lacks_is_refused(environment, strategies, reason):
    for strategy in strategies:
        text = refusal(*environment, *arm(strategy))
        assert text.startswith(f"partition.strategy='{strategy}': ")
        assert reason in text


def labels_of(split: str, folder: Path) -> Path:
    rows = [{"task_info": {"task_id": t.id}, "traj_info": {"success": True}} for t in WebShop().tasks(split)]
    path = folder / f"{split}.json"
    path.write_text(json.dumps({"trajectories": rows}))
    return path


@pytest.mark.parametrize("split", ["val", "demo"])
def test_labels_of_another_split_are_refused(split, tmp_path):
    path = labels_of(split, tmp_path)
    text = refusal(*SHOP, *arm("hardness", f"trajectories_file={path}"))
    assert text.startswith(f"partition.trajectories_file='{path}': only 0 of its ")
    assert "another split" in text


def test_real_labels_of_another_catalogue_are_refused(data_dir):
    path = data_dir / "hardness/webshop_trajectories_3200.json"
    assert "only 0 of its 3200 labels" in refusal(*SHOP, *arm("hardness", f"trajectories_file={path}"))


def test_a_world_that_lacks_a_task_of_its_shard_is_refused():
    text = refusal(*SHOP, *arm(f"{__name__}:unserved"))
    assert text.startswith(f"partition.strategy='{__name__}:unserved': client 1's world cannot serve ")


def test_clones_beside_human_goals_are_refused(tmp_path):
    items, instructions, _ = catalogue.generate()
    human = {
        item["asin"]: [
            {"instruction": f"want {n}", "instruction_attributes": ["soft"], "instruction_options": []}
            for n in range(8)
        ]
        for item in items[:100]
    }
    for name, table in (("items_shuffle.json", items), ("items_ins_v2.json", instructions), (HUMAN, human)):
        (tmp_path / name).write_text(json.dumps(table), encoding="utf-8")
    text = refusal(*SHOP, f"env.data_path={tmp_path}", "env.goals=human", *arm("lookalike"))
    assert text == "partition.strategy='lookalike': cannot be combined with env.goals=human; use synthetic"
    assert "unknown key" in refusal(*SHOP, "env.num_products=10", *arm("lookalike"))
