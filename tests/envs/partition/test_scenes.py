from collections import Counter
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.base import Shard, Task
from envs.partition import shard
from envs.partition.labels import read_labels
from envs.partition.scenes import room
from flwr_agent.errors import ConfigError

SCENES = [base + number for base in (0, 200, 300, 400) for number in range(1, 13)]
TASKS = [
    Task(f"{kind}-{scene}-{i}", "train", {"category": kind, "scene": scene})
    for scene in SCENES
    for kind, count in (("pick", 6), ("heat", 4), ("look", 2))
    for i in range(count)
]
KNOBS = {"tasks_per_client": 60, "scenes_per_client": 8}


def jaccard(sets: list[set]) -> float:
    return float(np.mean([len(a & b) / len(a | b) for a, b in combinations(sets, 2)]))


def shards(tasks: list[Task], env_div: float, num_clients: int = 20, **knobs: int) -> list[Shard]:
    return [shard(tasks, c, num_clients, "scene_disjoint", env_div=env_div, **knobs) for c in range(num_clients)]


def test_published_overlaps_of_games_and_scenes(data_dir):
    ids = read_labels(data_dir / "hardness/alfworld_trajectories.json")
    specs = {i: i.removeprefix("alfworld_").partition("_trial_")[0].split("-") for i in ids}
    tasks = [Task(i, "train", {"category": spec[0], "scene": int(spec[-1])}) for i, spec in specs.items()]
    published = {0.0: (1, 1), 0.3: (0.160, 0.195), 0.7: (0.068, 0.080), 1.0: (0.033, 0.043)}
    for env_div, (games, scenes) in published.items():
        found = shards(tasks, env_div, tasks_per_client=100, scenes_per_client=8)
        assert jaccard([set(s.task_ids) for s in found]) == pytest.approx(games, abs=5e-4)
        assert jaccard([set(s.variant.params["scenes"]) for s in found]) == pytest.approx(scenes, abs=5e-4)


def test_no_divergence_gives_every_client_the_same_games():
    assert len({s.task_ids for s in shards(TASKS, 0.0, **KNOBS)}) == 1


def test_games_overlap_less_the_more_the_environment_diverges():
    overlaps = [jaccard([set(s.task_ids) for s in shards(TASKS, div, **KNOBS)]) for div in (0.0, 0.3, 1.0)]
    assert overlaps == sorted(overlaps, reverse=True)
    assert overlaps[-1] < 0.3


@settings(max_examples=15, deadline=None)
@given(st.floats(0, 1), st.integers(0, 19), st.randoms())
def test_a_shard_is_exact_stratified_and_independent_of_the_order_of_the_list(env_div, client, random):
    mine = shard(TASKS, client, 20, "scene_disjoint", env_div=env_div, **KNOBS)
    scene_of, kind_of = ({t.id: t.meta[key] for t in TASKS} for key in ("scene", "category"))
    assert Counter(kind_of[i] for i in mine.task_ids) == {"pick": 30, "heat": 20, "look": 10}
    assert {scene_of[i] for i in mine.task_ids} <= set(mine.variant.params["scenes"])
    assert Counter(room(s) for s in mine.variant.params["scenes"]) == dict.fromkeys(
        ("kitchen", "living", "bedroom", "bathroom"), 2
    )
    shuffled = shard(random.sample(TASKS, len(TASKS)), client, 20, "scene_disjoint", env_div=env_div, **KNOBS)
    assert set(shuffled.task_ids) == set(mine.task_ids)


def test_a_type_that_runs_out_is_made_up_from_the_fullest():
    tasks = [t for t in TASKS if t.meta["category"] == "pick" or t.meta["scene"] > 400]
    mine = shard(tasks, 0, 2, "scene_disjoint", env_div=1.0, tasks_per_client=50, scenes_per_client=8)
    assert len(mine.task_ids) == 50


def test_extra_scenes_go_to_the_first_rooms():
    mine = shard(TASKS, 0, 2, "scene_disjoint", env_div=1.0, tasks_per_client=20, scenes_per_client=6)
    counts = Counter(room(s) for s in mine.variant.params["scenes"])
    assert counts == {"bathroom": 2, "bedroom": 2, "kitchen": 1, "living": 1}


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"env_div": 2}, r"partition\.env_div=2: must be a number from 0 to 1"),
        ({"scenes_per_client": 49}, r"partition\.scenes_per_client=49: .*has 48 scenes"),
        ({"scenes_per_client": 4}, r"partition\.scenes_per_client=4: client 0's scenes hold 48 games"),
    ],
)
def test_knobs_that_cannot_be_met_are_refused(bad, message):
    with pytest.raises(ConfigError, match=message):
        shard(TASKS, 0, 2, "scene_disjoint", **({"env_div": 0.7} | KNOBS | bad))
