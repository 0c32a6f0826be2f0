import random
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.minihouse.engine import NOTHING_HAPPENS, House
from envs.minihouse.world import Goal, World, generate

KITCHEN = World(
    name="kitchen",
    scene=1,
    goal=Goal("pick_heat_then_place_in_recep", "egg", "countertop"),
    receptacles=("countertop 1", "drawer 1", "fridge 1", "microwave 1", "sinkbasin 1"),
    placement={"apple 1": "countertop 1", "egg 2": "fridge 1", "egg 1": "countertop 1", "knife 1": "countertop 1"},
    opened=(),
)


def played(*commands, world=KITCHEN):
    house = House(world)
    return house, [house.step(command) for command in commands]


def test_the_intro_lists_the_room_and_states_the_task():
    assert House(KITCHEN).intro() == (
        "-= Welcome to TextWorld, ALFRED! =-\n\nYou are in the middle of a room. Looking quickly around you, you see "
        "a countertop 1, a drawer 1, a fridge 1, a microwave 1, and a sinkbasin 1.\n\n"
        "Your task is to: put a hot egg in countertop."
    )


def test_an_errand_reads_as_in_alfworld():
    house, texts = played(
        "look", "inventory", "go to fridge 1", "open fridge 1", "take egg 2 from fridge 1", "inventory",
        "close fridge 1", "go to microwave 1", "heat egg 2 with microwave 1", "examine egg 2", "go to countertop 1",
        "look", "move egg 2 to countertop 1", "examine countertop 1",
    )  # fmt: skip
    assert texts == [
        "You are in the middle of a room. Looking quickly around you, you see nothing.",
        "You are not carrying anything.",
        "You arrive at fridge 1. The fridge 1 is closed.",
        "You open the fridge 1. The fridge 1 is open. In it, you see a egg 2.",
        "You pick up the egg 2 from the fridge 1.",
        "You are carrying: a egg 2.",
        "You close the fridge 1.",
        "You arrive at microwave 1. The microwave 1 is closed.",
        "You heat the egg 2 using the microwave 1.",
        "This is a hot egg 2.",
        "You arrive at countertop 1. On the countertop 1, you see a apple 1, a egg 1, and a knife 1.",
        "You are facing the countertop 1. Next to it, you see nothing.",
        "You move the egg 2 to the countertop 1.",
        "On the countertop 1, you see a apple 1, a egg 2, a egg 1, and a knife 1.",
    ]
    assert house.is_won


def test_heating_and_cooling_undo_each_other_and_cleaning_stays():
    _, texts = played(
        "go to countertop 1", "take egg 1 from countertop 1", "examine egg 1", "go to sinkbasin 1",
        "clean egg 1 with sinkbasin 1", "go to microwave 1", "heat egg 1 with microwave 1", "examine egg 1",
        "go to fridge 1", "cool egg 1 with fridge 1", "examine egg 1",
    )  # fmt: skip
    assert texts[2] == "There's nothing special about egg 1."
    assert texts[7] == "This is a hot and clean egg 1."
    assert texts[10] == "This is a cool and clean egg 1."


def test_a_knife_slices_what_lies_at_the_place():
    _, texts = played(
        "go to countertop 1", "take knife 1 from countertop 1", "slice apple 1 with knife 1", "slice egg 1 with knife 1",
        "move knife 1 to countertop 1", "take apple 1 from countertop 1", "examine apple 1", "go to fridge 1",
        "cool apple 1 with fridge 1", "examine apple 1",
    )  # fmt: skip
    assert texts[2] == "You sliced the apple 1 with the knife 1."
    assert texts[3] == NOTHING_HAPPENS
    assert texts[6] == "This is a sliced apple 1."
    assert texts[9] == "This is a cool sliced apple 1."


@pytest.mark.parametrize(
    ("commands", "refused"),
    [
        (["go to fridge 1"], "take egg 2 from fridge 1"),
        (["go to fridge 1"], "go to fridge 1"),
        (["go to fridge 1"], "close fridge 1"),
        ([], "take egg 1 from countertop 1"),
        (["go to countertop 1"], "examine egg 1"),
        (["go to countertop 1"], "open countertop 1"),
        (["go to countertop 1", "take egg 1 from countertop 1"], "take apple 1 from countertop 1"),
        (["go to countertop 1", "take egg 1 from countertop 1", "go to drawer 1", "open drawer 1"],
         "move egg 1 to drawer 1"),
        (["go to countertop 1", "take egg 1 from countertop 1", "go to fridge 1"], "move egg 1 to fridge 1"),
        (["go to countertop 1", "take knife 1 from countertop 1", "go to microwave 1"], "heat knife 1 with microwave 1"),
    ],
)  # fmt: skip
def test_what_the_rules_forbid_changes_nothing(commands, refused):
    house, _ = played(*commands)
    before = house.admissible()
    assert refused not in before
    assert house.step(refused) == NOTHING_HAPPENS
    assert house.admissible() == before


def test_light_is_won_by_holding_the_object_at_the_lit_lamp_even_behind_a_door():
    world = World(
        name="lamp",
        scene=201,
        goal=Goal("look_at_obj_in_light", "pen", "desklamp"),
        receptacles=("cabinet 1", "desk 1"),
        placement={"desklamp 1": "cabinet 1", "pen 1": "desk 1"},
        opened=(),
    )
    house, texts = played("go to cabinet 1", "use desklamp 1", world=world)
    assert texts[-1] == "You turn on the desklamp 1."
    assert not house.is_won
    house.step("go to desk 1")
    house.step("take pen 1 from desk 1")
    assert not house.is_won
    house.step("go to cabinet 1")
    assert house.is_won


def test_two_objects_must_lie_in_the_same_receptacle():
    world = World(
        name="two",
        scene=1,
        goal=Goal("pick_two_obj_and_place", "fork", "drawer"),
        receptacles=("countertop 1", "drawer 2", "drawer 1"),
        placement={"fork 2": "countertop 1", "fork 1": "countertop 1"},
        opened=("drawer 2", "drawer 1"),
    )
    house, _ = played(
        "go to countertop 1", "take fork 1 from countertop 1", "go to drawer 1", "move fork 1 to drawer 1",
        "go to countertop 1", "take fork 2 from countertop 1", "go to drawer 2", "move fork 2 to drawer 2", world=world,
    )  # fmt: skip
    assert not house.is_won
    for command in ("take fork 2 from drawer 2", "go to drawer 1", "move fork 2 to drawer 1"):
        house.step(command)
    assert house.is_won


def test_ten_thousand_random_strings_change_nothing_and_never_raise():
    draw = random.Random(7)
    house = House(generate("train-11"))
    words = [
        "go",
        "to",
        "take",
        "from",
        "open",
        "look",
        "fridge",
        "cabinet",
        "egg",
        "1",
        "2",
        "99",
        "[",
        "\x00",
        "看",
        "{0}",
    ]
    for _ in range(10_000):
        legal = house.admissible()
        text = " ".join(draw.choices(words, k=draw.randint(0, 6)))
        answer = house.step(text)
        if text.strip() not in legal:
            assert answer == NOTHING_HAPPENS
            assert house.admissible() == legal


@given(st.text())
@settings(max_examples=50)
def test_any_text_is_answered(text):
    assert House(KITCHEN).step(text)


@given(st.integers(0, 10_000), st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_random_play_keeps_every_object_in_one_place(number, seed):
    world = generate(f"val-{number}")
    house, draw = House(world), random.Random(seed)
    for _ in range(40):
        house.step(draw.choice(house.admissible()))
    seen = [object_ for objects in house._inside.values() for object_ in objects]
    held = [house._held] if house._held else []
    assert sorted(seen + held) == sorted(world.placement)


def test_a_step_with_its_admissible_list_takes_less_than_fifty_microseconds():
    draw, rates = random.Random(0), []
    for number in range(8):
        commands = []
        house = House(generate(f"train-{number}"))
        start = time.process_time()
        for _ in range(500):
            commands = house.admissible()
            house.step(draw.choice(commands))
        rates.append(500 / (time.process_time() - start))
    assert max(rates) >= 20_000
