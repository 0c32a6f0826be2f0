import subprocess
import sys
from collections import Counter

import pytest

from envs.minihouse import MiniHouse
from envs.minihouse.adapter import NUM_GAMES
from envs.minihouse.engine import House
from envs.minihouse.oracle import solve
from envs.minihouse.tables import OBJECTS, ROOMS, TOOLS
from envs.minihouse.world import TYPES, generate, goal, kind, listing_order, scene_receptacles

NAMES = [f"train-{number}" for number in range(300)]


def test_the_oracle_wins_300_of_300_games_with_its_last_command_fifty_of_each_type():
    for name in NAMES:
        house = House(generate(name))
        won = []
        for command in solve(generate(name)):
            assert command in house.admissible()
            house.step(command)
            won.append(house.is_won)
        assert won.index(True) == len(won) - 1 <= 12, name
    assert Counter(goal(name)[1].type for name in NAMES) == dict.fromkeys(TYPES, 50)


def test_every_split_is_large_enough_and_all_its_games_can_be_set():
    assert NUM_GAMES["train"] >= 3553
    assert NUM_GAMES["val"] >= 500
    assert NUM_GAMES["demo"] >= 1000
    for split, count in NUM_GAMES.items():
        assert len(MiniHouse().tasks(split)) == count


def test_no_household_stands_in_two_splits():
    worlds = Counter(
        (world.scene, world.goal, tuple(world.placement.items()), world.opened)
        for split in NUM_GAMES
        for world in (generate(f"{split}-{number}") for number in range(600))
    )
    assert max(worlds.values()) == 1


def test_everything_stands_where_its_kind_can_stand():
    for name in NAMES:
        world = generate(name)
        assert world.receptacles == scene_receptacles(world.scene)
        for object_, receptacle in world.placement.items():
            assert receptacle in world.receptacles
            assert kind(receptacle) in OBJECTS[kind(object_)].holders
        assert list(world.placement) == sorted(world.placement, key=listing_order)


def test_meta_names_type_scene_and_objects_of_the_game():
    for task in MiniHouse().tasks("val")[:60]:
        world = generate(task.id)
        assert task.meta["category"] == world.goal.type
        assert task.meta["scene"] == world.scene
        assert task.meta["objects"] == [world.goal.object, world.goal.target]


def test_scenes_cover_the_four_room_ranges():
    scenes = {task.meta["scene"] for task in MiniHouse().tasks("train")}
    assert scenes == {base + number for base in (0, 200, 300, 400) for number in range(1, 31)}


def test_tables_refer_to_what_exists():
    receptacles = {kind_ for room in ROOMS.values() for kind_ in room.receptacles}
    assert receptacles >= set(TOOLS.values())
    for kind_, spec in OBJECTS.items():
        assert spec.holders <= receptacles, kind_
        assert spec.abilities <= {*TOOLS, "slice", "light"}, kind_
    assert {kind_ for room in ROOMS.values() for kind_ in room.objects} == set(OBJECTS)


@pytest.mark.parametrize(
    ("name", "text"),
    [("train-0", "put a "), ("train-1", "look at "), ("train-2", "put a clean "), ("train-3", "put a hot "),
     ("train-4", "put a cool "), ("train-5", "put two ")],
)  # fmt: skip
def test_the_sentence_says_the_type(name, text):
    assert generate(name).goal.text.startswith(text)


def test_games_do_not_depend_on_the_hash_seed():
    code = "from envs.minihouse import MiniHouse; print(MiniHouse().fingerprint())"
    prints = {
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout
        for seed in ("1", "2")
    }
    assert prints == {MiniHouse().fingerprint() + "\n"}
