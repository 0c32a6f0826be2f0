"""Laws of the embedded catalogue."""

import hashlib
import itertools
import json
import os
import subprocess
import sys

import pytest

from envs.webshop import catalogue
from envs.webshop.compact import brief, words
from envs.webshop.goals import NO_BOUND
from envs.webshop.scoring import attribute_hits, matches, normalise_colour
from envs.webshop.session import BUY, NEXT, PREV, SUB_PAGES
from envs.webshop.shop import embedded_shop
from flwr_agent.paths import ROOT

GOLDEN = "540d2f532404ba98bd722d94db704e26de54c54b609522361ff99e7af61c9dad"


@pytest.fixture(scope="module")
def shop():
    return embedded_shop()


def test_it_has_a_thousand_products_and_6900_goals(shop):
    assert len(shop.products) == len({product.asin for product in shop.products}) == 1_000
    assert sum(map(len, shop.splits.values())) == len(shop.goals) == 6_900


def test_its_bytes_are_the_same_in_every_process():
    code = (
        "import hashlib, json; from envs.webshop import catalogue; "
        "print(hashlib.sha256(json.dumps(catalogue.generate()).encode()).hexdigest())"
    )
    for hash_seed in "1", "2":
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}  # noqa: TID251 (a child with another hash seed)
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
        )
        assert done.stdout.strip() == GOLDEN
    assert hashlib.sha256(json.dumps(catalogue.generate()).encode()).hexdigest() == GOLDEN


def test_splits_share_no_product_and_have_their_sizes(shop):
    asins = {split: {goal.product.asin for goal in goals} for split, goals in shop.splits.items()}
    for a, b in itertools.combinations(asins.values(), 2):
        assert not a & b
    assert {split: len(goals) for split, goals in shop.splits.items()} == {"train": 2850, "val": 600, "demo": 3450}
    types = {split: {goal.product.query for goal in goals} for split, goals in shop.splits.items()}
    assert types["val"] == types["demo"] == types["train"] == catalogue.TYPES


def test_option_values_are_single_words_that_never_match_each_other_or_a_button():
    buttons = {label.lower() for label in (BUY, NEXT, PREV, *SUB_PAGES)}
    for spec in catalogue.CATEGORIES.values():
        groups = list(spec["options"].items())
        values = [value for _, group in groups for value in group]
        assert len(values) == len(set(values))
        assert all(value.isalpha() and value not in buttons for value in values)
        for name, group in groups:
            for value in group:
                assert normalise_colour(value) == value, value
                if name != "color":
                    assert value not in catalogue.COLORS
            assert not any(matches(a, b) for a, b in itertools.combinations(group, 2))


def test_a_product_has_an_attribute_exactly_when_the_reward_sees_it(shop):
    for product in shop.products:
        pool = catalogue.CATEGORIES[product.category]["attributes"]
        assert {word for word in pool if attribute_hits([word], product)} == set(product.attributes)


def test_goals_are_about_their_product(shop):
    for goal in shop.goals.values():
        assert set(goal.attributes) <= set(goal.product.attributes)
        assert goal.product.price < goal.price_upper < NO_BOUND
        assert all(value in goal.product.options[name] for name, value in goal.options)


def test_a_title_search_finds_its_product(shop):
    for i, product in enumerate(shop.products):
        assert i in shop.index.search(product.title, 50)


def test_the_vocabulary_is_small(shop):
    texts = [words(product.title) for product in shop.products]
    texts += [value for product in shop.products for values in product.options.values() for value in values]
    texts += [words(goal.instruction) + " " + brief(goal.instruction) for goal in shop.goals.values()]
    assert len({word for text in texts for word in text.split()}) <= 200
    assert all(len(product.title.split()) <= 6 for product in shop.products)
    assert all(3 <= len(values) <= 5 for product in shop.products for values in product.options.values())
