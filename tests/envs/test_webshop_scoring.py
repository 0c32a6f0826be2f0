"""What a purchase is worth."""

import pytest

from envs.webshop.goals import Goal, task_id
from envs.webshop.products import Product
from envs.webshop.scoring import COLOURS, content_words, matches, normalise_colour, score, type_factor

JACKET = Product(
    "B01", "Soft Warm Jacket", "A jacket.", ("Made of wool",), 25.0, "$25.0",
    {"color": ("red", "green2"), "size": ("small", "x-small")}, ("soft", "warm"), "fashion", "jacket",
    frozenset({"Clothing", "Jackets"}),
)  # fmt: skip
HAT = Product(
    "B02", "Fluffy Hat", "", (), 95.0, "$95.0", {}, ("soft",), "fashion", "hat", frozenset({"Clothing"})
)  # fmt: skip
WANTED = {"color": "green2", "size": "small"}
GOAL = Goal("id", JACKET, "Find me …", ("soft", "wool"), tuple(sorted(WANTED.items())), 30.0)


def buy(product, chosen, mode="strict", goal=GOAL):
    return score(goal, product, chosen, mode=mode, keywords=content_words)


@pytest.mark.parametrize("mode", ["strict", "upstream"])
def test_the_right_purchase_is_worth_exactly_one(mode):
    assert buy(JACKET, WANTED, mode) == 1.0


def test_each_miss_costs_its_share():
    assert buy(JACKET, {"color": "green2"}) == 4 / 5
    assert buy(JACKET, {}) == 3 / 5
    dear = Goal("id", JACKET, "", ("soft", "vegan"), GOAL.options, 20.0)
    assert buy(JACKET, WANTED, goal=dear) == 3 / 5


def test_a_product_without_a_common_keyword_is_worth_nothing():
    assert buy(HAT, {}) == 0.0


def test_the_type_factor_has_four_levels():
    far = Product("B03", "Warm Rug", "", (), 1.0, "$1.0", {}, (), "garden", "rug", frozenset({"Home"}))
    long = Product("B04", " ".join(f"w{i}" for i in range(9)) + " rug", "", (), 1.0, "", {}, (), "x", "q", frozenset())
    eleven = Product(
        "B05", " ".join(f"w{i}" for i in range(10)) + " rug", "", (), 1.0, "", {}, (), "x", "q", frozenset()
    )
    assert type_factor(JACKET, far, content_words) == 1.0  # a third of the title
    assert type_factor(long, far, content_words) == 0.5
    assert type_factor(eleven, far, content_words) == 0.1
    assert type_factor(JACKET, HAT, content_words) == 0.0


def test_upstream_matches_values_by_colour_and_words_and_strict_does_not():
    near = {"color": "dark green", "size": "x-small"}
    assert buy(JACKET, near, "strict") == 3 / 5
    assert normalise_colour("green2") == "green"
    assert buy(JACKET, {"color": "green", "size": "small"}, "upstream") == 1.0
    assert buy(JACKET, {"color": "green2", "size": "x-small"}, "upstream") == 1.0  # a subset of words is a match


def test_a_pair_in_place_of_a_value_is_refused():
    with pytest.raises(TypeError, match="must be text"):
        normalise_colour(("color", "red"))


def test_the_colour_list_is_the_published_one():
    assert len(COLOURS) == 102
    assert COLOURS.index("ash") < COLOURS.index("black")
    assert normalise_colour("rectangular") == "tan"
    assert normalise_colour("oak") == "oak"


def test_phrases_match_up_to_order_case_and_small_differences():
    assert matches("wash machine", "Machine wash!")
    assert matches("small", "x-small")
    assert not matches("hand wash", "machine wash")


def test_task_ids_hash_the_sorted_options_else_the_instruction():
    pairs = (("size", "small"), ("color", "red"))
    expected = 0x5CD8F607662C845105619265E0B74F9E
    assert task_id("B01", pairs, "text") == task_id("B01", tuple(reversed(pairs)), "other") == f"B01_{expected}"
    assert task_id("B01", (), "Find me a hat") == f"B01_{0xBA823902C470AB72E2FC16CBB01A38D6}"
