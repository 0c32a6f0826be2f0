"""Control laws: a knob moves its own axis by the stated law, leaves the other axes at the i.i.d. floor, and moves no mean."""

import numpy as np
import pytest
from pools import labels_file

from envs.base import Shard, Task
from envs.partition import shard
from envs.partition.heterogeneity import (
    categories,
    category_mix,
    easy_share,
    holdings,
    iid_floor,
    leak,
    measure,
    overlap,
)
from envs.partition.labels import read_labels
from envs.partition.sizing import beta_sizes

NUM_SEEDS = 200
LOW_HIGH = {"preference": (0.01, 0.99), "coverage": (256.0, 1.0), "hardness": (256.0, 1.0)}
"""Strategy -> its knob's nearly-alike and its extreme value."""
KNOB = {"preference": "omega", "coverage": "size_std", "hardness": "success_std"}
DRAWS = np.random.default_rng(0)
CATEGORY = DRAWS.choice(5, 6000, p=[0.1, 0.15, 0.2, 0.25, 0.3])
EASY = DRAWS.random(6000) < 0.45
TASKS = [Task(f"t{i}", "train", {"category": f"c{CATEGORY[i]}"}) for i in range(6000)]


@pytest.fixture(scope="module")
def labels(tmp_path_factory) -> str:
    return labels_file(tmp_path_factory.mktemp("labels"), {f"t{i}": bool(EASY[i]) for i in range(6000)})


def federation(strategy: str, value: float, labels: str) -> list[Shard]:
    knobs = {"tasks_per_client": 100, KNOB[strategy]: value}
    if strategy == "hardness":
        knobs["trajectories_file"] = labels
    return [shard(TASKS, c, 100, strategy, **knobs) for c in range(100)]


@pytest.mark.parametrize("concentration", [1, 4, 16, 256])
@pytest.mark.parametrize(("low", "mean", "high"), [(100, 500, 1000), (0, 50, 100)])
def test_size_and_difficulty_spread_follow_their_law(low, mean, high, concentration):
    share = (mean - low) / (high - low)
    law = (high - low) ** 2 * share * (1 - share) / (concentration + 1)
    variances = [
        beta_sizes(100, low, mean, high, concentration, np.random.default_rng(seed)).var() for seed in range(NUM_SEEDS)
    ]
    assert np.mean(variances) == pytest.approx(law, rel=0.05)
    canonical = beta_sizes(100, low, mean, high, concentration, np.random.default_rng(42)).var()
    assert canonical == pytest.approx(law, rel=0.25)


@pytest.mark.parametrize("omega", [0.01, 0.5, 0.99])
def test_preference_spread_follows_its_law(omega):
    tasks = [Task(f"t{i}", "train", {"category": f"c{i % 4}"}) for i in range(400)]
    num_clients, size, prior = 20, 50, 4 * 0.25**2
    law = (omega + (1 - omega) / size) * (1 - prior) * (1 - 1 / num_clients)
    spreads = []
    for seed in [42, *range(1000, 1000 + 100 * NUM_SEEDS, 100)]:
        shards = [
            shard(tasks, c, num_clients, "preference", seed=seed, tasks_per_client=size, omega=omega)
            for c in range(num_clients)
        ]
        spreads.append(measure(tasks, shards, None).preference)
    assert np.mean(spreads[1:]) == pytest.approx(law, rel=0.05)
    assert spreads[0] == pytest.approx(law, rel=0.25)


@pytest.mark.parametrize("strategy", LOW_HIGH)
def test_a_knob_moves_its_own_axis_alone_and_no_mean(strategy, labels):
    rows = []
    for value in LOW_HIGH[strategy]:
        shards = federation(strategy, value, labels)
        found, floor = measure(TASKS, shards, EASY), iid_floor(TASKS, shards, EASY)
        held = holdings(TASKS, shards)
        means = [held.sum(axis=1).mean(), easy_share(held, EASY).mean(), *category_mix(TASKS, held).mean(axis=0)]
        rows.append((getattr(found, strategy), means))
        leaked = leak(strategy, found, floor)
        assert set(leaked) == {"preference", "coverage", "hardness"} - {strategy}
        for axis, value_leaked in leaked.items():
            assert abs(value_leaked) <= 0.45 * getattr(floor, axis)
    (alike, means_alike), (extreme, means_extreme) = rows
    assert extreme > 20 * alike
    assert means_extreme[0] == means_alike[0]
    assert means_extreme[1] == pytest.approx(means_alike[1], abs=0.02)
    assert np.abs(np.subtract(means_extreme[2:], means_alike[2:])).max() < 0.1


def test_difficulty_that_depends_on_category_leaks_and_the_leak_is_reported(labels):
    shards = federation("preference", 0.99, labels)
    solved = CATEGORY < 2
    floor = iid_floor(TASKS, shards, solved)
    assert leak("preference", measure(TASKS, shards, solved), floor)["hardness"] > 20 * floor.hardness


def test_on_real_labels_a_skewed_category_mix_leaks_into_difficulty(data_dir):
    solved = read_labels(data_dir / "hardness/alfworld_trajectories.json")
    tasks = [Task(i, "train", {"category": i.split("-")[0]}) for i in sorted(solved)]
    easy = np.array([solved[task.id] for task in tasks])
    leaks = []
    for omega in LOW_HIGH["preference"]:
        shards = [shard(tasks, c, 100, "preference", tasks_per_client=100, omega=omega) for c in range(100)]
        leaks.append(leak("preference", measure(tasks, shards, easy), iid_floor(tasks, shards, easy))["hardness"])
    assert leaks[0] < 0.002
    assert leaks[1] == pytest.approx(0.019, abs=0.002)


def test_the_iid_floor_is_what_random_shards_measure():
    draws = np.random.default_rng(3)
    sizes = draws.integers(50, 400, 400)
    shards = [Shard(c, tuple(f"t{i}" for i in draws.choice(6000, s, replace=False))) for c, s in enumerate(sizes)]
    found, floor = measure(TASKS, shards, EASY), iid_floor(TASKS, shards, EASY)
    assert found.preference == pytest.approx(floor.preference, rel=0.15)
    assert found.hardness == pytest.approx(floor.hardness, rel=0.15)


def test_overlap_is_the_jaccard_index():
    shards = [Shard(0, ("t0", "t1")), Shard(1, ("t1", "t2")), Shard(2, ("t9",))]
    assert overlap(holdings(TASKS[:10], shards)).tolist() == [[1, 1 / 3, 0], [1 / 3, 1, 0], [0, 0, 1]]


def test_categories_keep_the_order_in_which_they_are_seen():
    assert categories([Task("a", "train", {"category": "z"}), Task("b", "train", {"category": "a"})]) == ["z", "a"]
