"""Game lists and game files; nothing here needs the engine."""

import json
import random

import pytest

from envs.alfworld import games
from envs.alfworld.engine import shown_names
from envs.registry import create, knobs
from flwr_agent.errors import ConfigError, DataError

PROBLEM = "(define (problem p) (:goal (and (x))))"
GAME = {"pddl_domain": "d", "grammar": "g", "pddl_problem": PROBLEM, "solvable": True, "walkthrough": None}
SPECS = [f"pick_and_place_simple-Mug-None-Shelf-{scene}" for scene in (1, 2, 201, 301, 401)]


def put(folder, spec, trial="trial_T1", split="train", **changes):
    path = folder / split / spec / trial / "game.tw-pddl"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({**GAME, **changes}))
    return path


@pytest.fixture
def folder(tmp_path):
    for spec in SPECS:
        put(tmp_path, spec)
    return tmp_path


def test_games_are_sorted_and_then_shuffled_by_a_fixed_seed_whatever_order_the_disk_gives(folder, monkeypatch):
    listed = games.listed(folder, "train")
    assert listed == sorted(listed)
    expected = list(listed)
    random.Random(42).shuffle(expected)
    (folder / "manifest_train.json").unlink()
    glob = type(folder).glob
    monkeypatch.setattr(type(folder), "glob", lambda self, pattern: reversed(list(glob(self, pattern))))
    found = games.tasks(folder, "train")
    assert [task.meta["game"] for task in found] == [f"train/{game}" for game in expected]


def test_a_task_is_named_as_in_published_labels_and_described_by_its_folder(folder):
    put(folder, "look_at_obj_in_light-Book-None-DeskLamp-305", "trial_T2", split="valid_seen")
    (task,) = games.tasks(folder, "valid_seen")
    assert task.id == "alfworld_look_at_obj_in_light-Book-None-DeskLamp-305_trial_T2_game"
    assert task.meta["category"] == "look_at_obj_in_light"
    assert task.meta["scene"] == 305
    assert task.meta["objects"] == ["Book", "DeskLamp"]


def test_sliced_movable_and_unsolvable_games_are_left_out(folder):
    put(folder, "pick_and_place_simple-AppleSliced-None-Fridge-1")
    put(folder, "pick_and_place_with_movable_recep-Mug-Pan-Shelf-1")
    put(folder, "pick_and_place_simple-Cup-None-Shelf-1", solvable=False)
    put(folder, "pick_and_place_simple-Cup-None-Shelf-2", solvable=None)
    assert len(games.listed(folder, "train")) == len(SPECS)


def test_the_first_list_is_pinned_and_later_games_are_ignored(folder):
    first = games.listed(folder, "train")
    put(folder, "pick_and_place_simple-Cup-None-Shelf-3")
    assert games.listed(folder, "train") == first


def test_a_listed_game_that_is_missing_stops_the_run(folder):
    first = games.listed(folder, "train")
    (folder / "train" / first[2]).unlink()
    with pytest.raises(DataError, match=f"1 of 5 listed games are missing, first {first[2]}"):
        games.listed(folder, "train")


def test_a_damaged_manifest_is_refused(folder):
    games.listed(folder, "train")
    file = folder / "manifest_train.json"
    content = json.loads(file.read_text())
    file.write_text(json.dumps({**content, "games": content["games"][1:]}))
    with pytest.raises(DataError, match="sha256: does not fit"):
        games.listed(folder, "train")
    file.write_text("{")
    with pytest.raises(DataError, match="is not a manifest"):
        games.listed(folder, "train")


def test_an_empty_split_and_a_wrong_folder_are_refused(tmp_path):
    (tmp_path / "train").mkdir()
    with pytest.raises(DataError, match="no solvable game found"):
        games.listed(tmp_path, "train")
    with pytest.raises(ConfigError, match=r"env\.data_path"):
        games.root(str(tmp_path / "train"))


def test_the_data_may_lie_one_folder_deeper(tmp_path):
    put(tmp_path / "json_2.1.1", SPECS[0])
    assert games.root(str(tmp_path)) == (tmp_path / "json_2.1.1").resolve()


def test_a_folder_name_without_a_scene_is_refused(folder):
    put(folder, "pick-Mug", split="valid_seen")
    with pytest.raises(DataError, match="TYPE-OBJECT-MOVABLE-RECEPTACLE-SCENE"):
        games.tasks(folder, "valid_seen")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"pddl_problem": "(define (problem p) (:init))"}, "pddl_problem: has no goal"),
        ({"pddl_problem": "(define (problem p) (:goal ))"}, "pddl_problem: has no goal"),
        ({"grammar": None}, "grammar: must be a text"),
        ({"pddl_domain": 3}, "pddl_domain: must be a text"),
    ],
)
def test_a_malformed_game_is_refused_by_file_and_field(tmp_path, changes, message):
    path = put(tmp_path, SPECS[0], **changes)
    with pytest.raises(DataError, match=message) as caught:
        games.read(path)
    assert str(path) in str(caught.value)


def test_a_file_that_is_no_json_or_missing_is_refused(tmp_path):
    (tmp_path / "game.tw-pddl").write_text("nonsense")
    with pytest.raises(DataError, match="is not JSON"):
        games.read(tmp_path / "game.tw-pddl")
    with pytest.raises(DataError, match="cannot be read"):
        games.read(tmp_path / "absent")


def test_numbers_fall_with_sorted_identifiers_and_basins_are_named_once():
    ids = ["cabinet_bar_2", "cabinet_bar_1", "sink_bar_1_bar_sinkbasin", "sink_bar_1", "agent1"]
    assert shown_names(ids) == {
        "agent1": "agent1",
        "cabinet_bar_1": "cabinet 2",
        "cabinet_bar_2": "cabinet 1",
        "sink_bar_1": "sink 1",
        "sink_bar_1_bar_sinkbasin": "sinkbasin 1",
    }


def test_without_textworld_the_extra_is_named(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"flwr-agent\[alfworld\]"):
        create("alfworld", {})


def test_the_settings_are_the_data_folder_and_the_number_of_workers():
    assert knobs("alfworld") - knobs("minihouse") == {"data_path", "workers"}
