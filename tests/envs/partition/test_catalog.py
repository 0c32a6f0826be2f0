from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.base import Task
from envs.partition import shard
from envs.partition.catalog import catalog
from flwr_agent.errors import ConfigError

ASINS = [f"B{i:09d}" for i in range(970)]
TASKS = [Task(f"{asin}_{j}", "train", {"category": "c", "asin": asin}) for j in range(4) for asin in ASINS[:415]]
KNOBS = {"tasks_per_client": 40, "keep_ratio": 0.7}


def params(client_id: int, env_div: float, **changes: object) -> dict[str, object]:
    own = {"client_id": client_id, "seed": 42, "env_div": env_div, "keep_ratio": 0.7, "targets": ASINS[:415]}
    return own | changes


def overlap(env_div: float, targets: list[str]) -> float:
    shops = [catalog(ASINS, params(c, env_div, targets=targets)) for c in range(12)]
    return float(np.mean([len(a & b) / len(a | b) for a, b in combinations(shops, 2)]))


def test_published_shop_of_803_products_and_its_overlap():
    assert len(catalog(ASINS, params(0, 1.0))) == 803
    assert overlap(1.0, ASINS[:415]) == pytest.approx(0.75, abs=0.02)
    assert overlap(1.0, []) == pytest.approx(0.54, abs=0.02)


def test_shops_overlap_less_the_more_the_environment_diverges():
    overlaps = [overlap(div, []) for div in (0.0, 0.3, 0.7, 1.0)]
    assert overlaps[0] == 1.0
    assert overlaps == sorted(overlaps, reverse=True)
    assert len(set(overlaps)) == 4


@settings(max_examples=25, deadline=None)
@given(st.floats(0, 1), st.floats(0, 1), st.sets(st.sampled_from(ASINS)), st.integers(0, 99), st.randoms())
def test_every_target_is_in_the_shop_whatever_order_products_come_in(env_div, keep_ratio, targets, client, random):
    own = params(client, env_div, keep_ratio=keep_ratio, targets=sorted(targets))
    shop = catalog(ASINS, own)
    assert targets <= shop
    assert len(shop) == len(targets) + round(keep_ratio * (len(ASINS) - len(targets)))
    assert catalog(random.sample(ASINS, len(ASINS)), own) == shop


@pytest.mark.parametrize("env_div", [0.0, 1.0])
def test_every_served_goals_product_is_in_its_clients_shop(env_div):
    for client in range(10):
        mine = shard(TASKS, client, 10, "catalog_split", env_div=env_div, **KNOBS)
        shop = catalog(ASINS, mine.variant.params)
        assert {task_id.partition("_")[0] for task_id in mine.task_ids} <= shop
        assert len(mine.variant.params["targets"]) < 415


def test_a_target_that_the_shop_does_not_sell_is_refused():
    with pytest.raises(ConfigError, match=r"lacks 1 products that goals ask for \(B000000003"):
        catalog(ASINS[:3] + ASINS[4:], params(0, 0.7))


@pytest.mark.parametrize("bad", [{"env_div": 2}, {"env_div": -0.1}, {"keep_ratio": 1.5}])
def test_knobs_outside_their_range_are_refused(bad):
    (knob,) = bad
    with pytest.raises(ConfigError, match=rf"partition\.{knob}=.*from 0 to 1"):
        shard(TASKS, 0, 10, "catalog_split", **(KNOBS | {"env_div": 0.7} | bad))
