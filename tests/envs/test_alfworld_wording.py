"""What is done to a game's sentence and solution; nothing here needs the engine."""

import pytest

from envs.alfworld.walkthrough import adapted, opened
from envs.alfworld.wording import first_way, worded_alike
from envs.minihouse.rules import KINDS, Rules
from envs.minihouse.world import TYPES, generate
from flwr_agent.errors import DataError


def test_generated_households_are_worded_in_the_first_way_already():
    goals = [generate(f"demo-{number}").goal for number in range(60)]
    assert {goal.type for goal in goals} == set(TYPES)
    assert all(first_way(goal.text) == goal.text for goal in goals)


@pytest.mark.parametrize(
    ("second", "first"),
    [
        ("put some mug on shelf", "put a mug in shelf"),
        ("clean some plate and put it in fridge", "put a clean plate in fridge"),
        ("heat some egg and put it in countertop", "put a hot egg in countertop"),
        ("cool some lettuce and put it in diningtable", "put a cool lettuce in diningtable"),
        ("find two pen and put them in drawer", "put two pen in drawer"),
        ("examine the book with the desklamp", "look at book under the desklamp"),
    ],
)
def test_the_second_way_of_each_type_becomes_the_first(second, first):
    assert first_way(second) == first == first_way(first)


def test_a_sentence_of_another_form_and_a_grammar_without_one_are_refused():
    grammar = '{"task": [{"rhs": "Your task is to: %s."}], "intro": []}'
    assert worded_alike(grammar % "put some mug on shelf", "g") == grammar % "put a mug in shelf"
    with pytest.raises(DataError, match="g: grammar: the task 'juggle two mugs' is worded in none"):
        worded_alike(grammar % "juggle two mugs", "g")
    for text in ("{}", grammar % "put a mug in shelf" * 2):
        with pytest.raises(DataError, match=r"g: grammar: has [02] task sentences, not 1"):
            worded_alike(text, "g")


PLAN = ["go to fridge 1", "open fridge 1", "take egg 1 from fridge 1", "go to shelf 1", "take mug 1 from shelf 1",
        "go to cabinet 1", "open cabinet 1", "move egg 1 to cabinet 1", "put mug 1 in/on cabinet 1"]  # fmt: skip


@pytest.mark.parametrize(
    ("key", "added"),
    [
        (("obs_variant", "v_paraphrase"), {}),
        (("dyn_variant", "v_examine_gate"), {4: "examine shelf 1"}),
        (("dyn_variant", "v_autoclose"), {8: "open cabinet 1"}),
        (("dyn_variant", "v_both"), {4: "examine shelf 1", 8: "open cabinet 1"}),
        (("goal_variant", "v_examined"), {}),
        (("goal_variant", "v_closed"), {9: "close cabinet 1"}),
    ],
    ids=str,
)
def test_a_solution_gets_the_commands_that_the_rules_ask_for_and_no_more(key, added):
    expected = [c for at, command in enumerate([*PLAN, None]) for c in (added.get(at), command) if c]
    assert adapted(PLAN, KINDS[key]) == expected


def test_an_open_shelf_is_looked_into_before_it_is_served_and_a_lamp_s_object_after_it_was_taken():
    rules = KINDS["goal_variant", "v_both"]
    assert adapted(["move a 1 to shelf 2"], rules) == ["examine shelf 2", "move a 1 to shelf 2"]
    assert adapted(["take a 1 from bed 1", "use lamp 1"], rules, is_light=True) == [
        "take a 1 from bed 1", "examine a 1", "use lamp 1",
    ]  # fmt: skip


def test_doors_that_stand_open_at_the_start_are_known():
    assert adapted(["move a 1 to safe 1"], Rules(goal_needs_shut=True), opened={"safe 1"})[-1] == "close safe 1"
    taken = adapted(["take a 1 from safe 1"], Rules(needs_look=True), opened={"safe 1"})
    assert taken == ["examine safe 1", "take a 1 from safe 1"]
    problem = "(:init (openable Safe_bar_02) (opened Safe_bar_02) (openable Safe_bar_01)) (:goal (opened Safe_bar_01))"
    assert opened(problem) == {"safe 1"}


def test_a_door_that_shut_by_itself_is_not_closed_and_one_that_is_open_not_opened():
    plan = ["open box 1", "open box 1", "move a 1 to box 1", "close box 1"]
    assert adapted(plan, Rules(closes_itself=True)) == ["open box 1", "move a 1 to box 1"]
