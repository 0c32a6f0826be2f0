"""What a client's own shop is, and that every task of it can still be solved."""

import asyncio
import random
from collections import Counter
from dataclasses import replace
from itertools import combinations

import pytest

from envs.base import Task, Variant
from envs.check import check, play
from envs.partition import shard
from envs.partition.variants import FIELD_SUBSETS, LOOKALIKES, RANKINGS, assigned
from envs.webshop import WebShop, variants
from envs.webshop.lookalikes import FAR_COLOURS, NO_COLOURS, NO_SIZES, clones
from envs.webshop.okapi import document
from envs.webshop.shop import embedded_shop
from flwr_agent.errors import ConfigError

POOLS = {"bm25_field_subset": 8, "bm25_reweight": 8, "lookalike": 4, "rank_wrapper": 4}
BUDGET = 15
"""Turns of a published episode."""


def world(strategy: str, index: int, *, num_clients: int = 60, **settings) -> WebShop:
    tasks = WebShop(**settings).tasks("train")
    client = next(c for c in range(num_clients) if assigned(c, POOLS[strategy], 42) == index)
    mine = shard(tasks, client, num_clients, strategy, tasks_per_client=50, variant_n=POOLS[strategy])
    return WebShop(search_return_n=200, variant=mine.variant, **settings)


def split(client_id: int = 0, env_div: float = 1.0, **settings) -> tuple[WebShop, list[Task]]:
    """A client's shop under catalog_split, and its tasks there."""
    tasks = WebShop(**settings).tasks("train")
    mine = shard(tasks, client_id, 20, "catalog_split", tasks_per_client=100, env_div=env_div, keep_ratio=0.7)
    shop = WebShop(search_return_n=200, variant=mine.variant, **settings)
    by_id = {task.id: task for task in shop.tasks("train")}
    return shop, [by_id[task_id] for task_id in mine.task_ids]


WORLDS = [(name, index) for name, count in POOLS.items() for index in range(count)]


def plans(shop: WebShop, tasks: list[Task]) -> list[list[str] | None]:
    return [shop.oracle(task) for task in tasks]


@pytest.mark.parametrize(("strategy", "index"), WORLDS)
@pytest.mark.parametrize("data", ["none", "real"])
def test_an_oracle_solves_tasks_of_every_world(strategy, index, data, request):
    settings = {} if data == "none" else {"data_path": str(request.getfixturevalue("data_dir") / "webshop_real")}
    shop = world(strategy, index, **settings)
    tasks = shop.tasks("train")[::150]
    found = plans(shop, tasks)
    assert all(found)
    for task, plan in list(zip(tasks, found, strict=True))[:3]:
        assert asyncio.run(play(shop, task, plan, seed=index))[-1].info["success"]
    share = sum(len(plan) <= BUDGET for plan in found) / len(found)
    is_upside_down = (strategy, RANKINGS[index % 4]["kind"]) == ("rank_wrapper", "invert")
    assert share == (0.0 if is_upside_down else 1.0)


@pytest.mark.slow
@pytest.mark.parametrize(("strategy", "index"), WORLDS)
def test_an_oracle_solves_every_task_of_every_world(strategy, index):
    shop = world(strategy, index)
    found = plans(shop, shop.tasks("train"))
    assert all(found)
    late = sum(len(plan) > BUDGET for plan in found) / len(found)
    assert late == 1.0 if shop.variant.params.get("kind") == "invert" else late < 0.02


@pytest.mark.parametrize("env_div", [0.0, 1.0])
@pytest.mark.parametrize("data", ["none", "real"])
def test_every_served_goal_stays_reachable_in_its_clients_shop(env_div, data, request):
    settings = {} if data == "none" else {"data_path": str(request.getfixturevalue("data_dir") / "webshop_real")}
    for client in (0, 7, 19):
        shop, tasks = split(client, env_div, **settings)
        assert {task.meta["asin"] for task in tasks} <= shop.world.on_sale
        assert len(shop.world.on_sale) < len(shop.shop.products)
        assert all(plans(shop, tasks[::10]))


def test_a_shop_lists_only_what_is_on_sale_and_serves_only_those_tasks():
    shop, tasks = split()
    everything = WebShop(search_return_n=200)
    task = tasks[0]
    ours, theirs = shop.session(task), everything.session(task)
    for session in (ours, theirs):
        session.act("search[soft jacket]")
    listed = [shop.shop.products[at].asin for at in theirs.hits]
    assert [shop.shop.products[at].asin for at in ours.hits] == [a for a in listed if a in shop.world.on_sale]
    assert 0 < len(ours.hits) < len(theirs.hits)
    served = {task.id for task in shop.tasks("train")}
    assert served == {task.id for task in everything.tasks("train") if task.meta["asin"] in shop.world.on_sale}


def test_a_target_that_the_catalogue_lacks_stops_the_shop_from_opening():
    tasks = WebShop().tasks("train")
    mine = shard(tasks, 0, 20, "catalog_split", tasks_per_client=100, env_div=1.0, keep_ratio=0.7)
    lost = replace(mine.variant, params={**mine.variant.params, "targets": ["B0NOWHERE0"]})
    with pytest.raises(ConfigError, match=r"partition\.strategy='catalog_split': the shop lacks 1 products that goals"):
        WebShop(variant=lost)


def test_an_index_over_absent_fields_reads_the_title():
    product = embedded_shop().products[0]
    bullets = " ".join(product.bullets)
    texts = [document(product, fields) for fields in FIELD_SUBSETS]
    title = product.title
    assert texts == [
        f"{title} {title} {bullets}", f"{title} {title}", title, bullets,
        title, f"{title} {title} {bullets}", title, bullets,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("strategy", "pairs"),
    [("bm25_field_subset", [(0, 1), (0, 3), (1, 3)]), ("bm25_reweight", list(combinations(range(4), 2)))],
)
def test_other_fields_and_other_parameters_rank_otherwise(strategy, pairs):
    queries = [f"{g.attributes[0]} {g.product.query}" for g in list(embedded_shop().goals.values())[::200]]
    searches = [world(strategy, index).world.search for index in range(POOLS[strategy])]
    best = [[search(query, 10, random.Random(0)) for query in queries] for search in searches]
    assert all(best[i] != best[j] for i, j in pairs)


@pytest.mark.parametrize(("index", "changed"), list(enumerate(LOOKALIKES)))
def test_clones_change_what_they_should_and_nothing_else(index, changed):
    shop = world("lookalike", index).shop
    plain = embedded_shop().products
    bait = shop.products[len(plain) :]
    has = {"v_price": None, "v_color": "color", "v_size": "size", "v_price_color": "color"}[changed]
    assert shop.products[: len(plain)] == plain
    assert len(bait) == sum(has is None or has in product.options for product in plain)
    original = {product.asin: product for product in plain}
    for clone in bait:
        prefix, _, asin = clone.asin.rpartition("_")
        assert prefix in ("LK_PRICE", "LK_COLOR", "LK_SIZE", "LK_PCOL")
        source = original[asin]
        restored = replace(clone, asin=asin, price=source.price, price_tag=source.price_tag, options=source.options)
        assert restored == source
        assert (clone.price, clone.price_tag) == (
            (9999.0, "$9999.0") if "price" in changed else (source.price, source.price_tag)
        )
        assert {name for name in source.options if clone.options[name] != source.options[name]} <= {has}


def test_no_colour_of_a_clone_is_drawn_from_its_own_colour():
    plain = [product for product in embedded_shop().products if "color" in product.options]
    only = [replace(product, options={"color": product.options["color"][:1]}) for product in plain]
    drawn = Counter()
    for source, clone in zip(only, clones(only, "v_color", 1), strict=True):
        (value,), (changed,) = source.options["color"], clone.options["color"]
        assert changed in FAR_COLOURS[value]
        drawn[changed] += 1
    assert len(drawn) > 5


def test_sizes_and_unknown_words_have_far_alternatives():
    product = replace(embedded_shop().products[0], options={"color": ("mystery",), "size": ("x-large", "9 wide")})
    (colour,) = clones([product], "v_color", 3)
    (size,) = clones([product], "v_size", 3)
    assert colour.options["color"][0] in NO_COLOURS
    assert size.options["size"][0] in ("small", "x-small", "xx-small")
    assert size.options["size"][1] in NO_SIZES


def test_clones_are_found_and_no_goal_asks_for_one():
    shop = world("lookalike", 0)
    goal = next(iter(shop.shop.goals.values()))
    session = shop.session(next(iter(shop.tasks("train"))))
    session.act(f"search[{goal.product.title}]")
    assert any(shop.shop.products[at].asin.startswith("LK_") for at in session.hits[:10])
    assert not any(task.meta["asin"].startswith("LK_") for name in shop.shop.splits for task in shop.tasks(name))


def test_the_rank_wrapper_shuffles_inverts_and_replaces():
    default, shuffle, invert, partial = (world("rank_wrapper", index).world.search for index in range(4))
    query, draw = "soft jacket", random.Random(1)
    ranked = default(query, 50, draw)
    assert invert(query, 50, draw) == ranked[::-1]
    first, second = shuffle(query, 50, draw), shuffle(query, 50, draw)
    assert sorted(first) == sorted(second) == sorted(ranked)
    assert ranked != first != second
    assert set(shuffle(query, 10, draw)) <= set(ranked)
    results = [partial(query, 50, draw) for _ in range(200)]
    assert 0.4 < sum(found == ranked for found in results) / 200 < 0.6
    assert all(len(set(found)) == 50 for found in results)


def test_chance_is_the_clients_and_the_tasks_own():
    tasks = WebShop().tasks("train")
    (a, b), variant = tasks[:2], Variant("rank_wrapper", {**world("rank_wrapper", 1).variant.params})
    other = replace(variant, params={**variant.params, "rank_seed": variant.params["rank_seed"] + 1})
    shops = [WebShop(variant=one) for one in (variant, variant, other)]

    def hits(shop: WebShop, task: Task) -> list[int]:
        session = shop.session(task)
        session.act("search[soft jacket]")
        return session.hits

    assert hits(shops[0], a) == hits(shops[1], a)
    assert hits(shops[0], a) != hits(shops[2], a)
    assert hits(shops[0], a) != hits(shops[0], b)


@pytest.mark.parametrize("style", ["paper", "compact"])
@pytest.mark.parametrize(("strategy", "index"), [("bm25_field_subset", 2), ("lookalike", 1), ("rank_wrapper", 1)])
def test_worlds_keep_the_environment_contract(strategy, index, style):
    assert check(world(strategy, index, style=style), episodes=2, splits=("train",)) == []


def test_a_world_has_the_tasks_of_the_standard_one_and_a_fingerprint_of_its_own():
    standard = WebShop(search_return_n=200)
    worlds = [world(strategy, index) for strategy, index in WORLDS]
    for one in worlds:
        assert one.tasks("train") == standard.tasks("train")
    assert len({one.fingerprint() for one in [standard, *worlds]}) == 1 + len(WORLDS)


def test_held_out_tasks_have_a_search_depth_of_their_own():
    shop = WebShop(search_return_n=200)
    for name, depth in (("train", 200), ("val", 50)):
        session = shop.session(shop.tasks(name)[0])
        session.act("search[red black white blue green pink]")
        assert len(session.hits) == depth


def test_engines_in_memory_are_refused_on_a_large_catalogue(monkeypatch):
    shops = [world(strategy, 0).variant for strategy in POOLS]
    monkeypatch.setattr(variants, "MIN_PRODUCTS", 999)
    for variant in shops:
        with pytest.raises(ConfigError, match=rf"partition\.strategy='{variant.name}': searches in memory"):
            WebShop(variant=variant)
    assert split()[0].tasks("train")


def test_clones_are_refused_beside_goals_that_people_wrote():
    with pytest.raises(ConfigError, match=r"partition\.strategy='lookalike': cannot be combined with env\.goals=human"):
        variants.world_of(embedded_shop(), world("lookalike", 0).variant, goals="human")


def test_an_unknown_variant_is_refused_with_the_known_ones():
    with pytest.raises(
        ConfigError, match=r"partition\.strategy='obs_variant': webshop has no such variant \(allowed: "
    ):
        WebShop(variant=Variant("obs_variant", {"kind": "default"}))
