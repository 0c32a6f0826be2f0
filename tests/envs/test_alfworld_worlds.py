"""Clients' own worlds on a folder of game files in the published form: every arm, every kind, every type of task."""

import asyncio
import json
from itertools import cycle, product

import pytest

from envs.alfworld import games
from envs.base import Variant
from envs.check import check, play
from envs.minihouse.rules import KINDS
from envs.minihouse.world import TYPES, generate
from envs.partition import shard
from envs.partition.variants import assigned
from envs.registry import create
from tests.envs.alfworld_games import crowded, modern, old_vocabulary, published, write

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(600)]
pytest.importorskip("textworld", reason="needs the extra alfworld")

FORMS = {"modern": dict, "old": old_vocabulary, "crowded": crowded}
ARMS = ("obs_variant", "dyn_variant", "goal_variant")
CLIENTS = {kind: next(c for c in range(40) if assigned(c, 4, 42) == kind) for kind in range(4)}


def households(per_type=1):
    """Names of generated households, `per_type` of each type of task, with a target that has a door where there is one."""
    names, found = (f"demo-{number}" for number in range(400)), {kind: [] for kind in TYPES}
    for name in names:
        mine = found[generate(name).goal.type]
        if len(mine) < per_type:
            mine.append(name)
    return [name for mine in found.values() for name in mine]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Six games a form: both vocabularies, both wordings, receptacles that share a place, goals of ALFWorld's library."""
    folder, wordings = tmp_path_factory.mktemp("alfworld"), cycle((0, 1))
    for form, change in FORMS.items():
        for name in households():
            content = published(change(modern(name)), generate(name).goal, wording=next(wordings))
            write(folder, "train", name, content, trial=f"trial_{form}")
        next(wordings)
    write(folder, "valid_seen", "val-3", modern("val-3"))
    return folder


def adapter_of(folder, variant=None):
    return create("alfworld", {"data_path": str(folder), "workers": 2}, variant=variant)


def deal(folder, strategy, client):
    tasks = adapter_of(folder).tasks("train")
    return shard(tasks, client, 40, strategy, tasks_per_client=len(tasks), variant_n=4)


def transcripts(adapter, tasks, plans):
    async def all_of_them():
        return await asyncio.gather(*(play(adapter, *pair, seed=0) for pair in zip(tasks, plans, strict=True)))

    return asyncio.run(all_of_them())


@pytest.mark.parametrize(("arm", "kind"), [("obs_variant", 0), *product(ARMS, (1, 2, 3))])
def test_the_stored_solution_fits_every_world_of_every_arm_and_wins_with_its_last_command(folder, arm, kind):
    mine = deal(folder, arm, CLIENTS[kind])
    adapter = adapter_of(folder, mine.variant)
    tasks = adapter.tasks("train")
    assert {task.id for task in tasks} == set(mine.task_ids)
    assert len(tasks) == 6 * len(FORMS)
    plans = [adapter.oracle(task) for task in tasks]
    for task, steps in zip(tasks, transcripts(adapter, tasks, plans), strict=True):
        assert [step.info["success"] for step in steps].index(True) == len(steps) - 1, task.id
        assert not any(step.text == "Nothing happens." for step in steps[1:]), task.id


@pytest.mark.parametrize(
    ("arm", "kind", "binds"),
    [
        ("dyn_variant", "v_examine_gate", True),
        ("goal_variant", "v_examined", True),
        ("dyn_variant", "v_autoclose", False),
    ],
)
def test_a_rule_that_binds_defeats_the_plain_solution(folder, arm, kind, binds):
    plain, strict = adapter_of(folder), adapter_of(folder, Variant(arm, {"kind": kind}))
    tasks = plain.tasks("train")
    played = transcripts(strict, tasks, [plain.oracle(task) for task in tasks])
    lost = sum(not steps[-1].info["success"] for steps in played)
    assert (lost > len(tasks) // 3) if binds else lost <= len(tasks) // 3


def test_wordings_of_a_world_differ_from_the_standard_one_and_its_rules_do_not(folder):
    plain = adapter_of(folder)
    tasks = plain.tasks("train")[:6]
    plans = [plain.oracle(task) for task in tasks]
    standard = transcripts(plain, tasks, plans)
    for kind in ("v_terse_goto", "v_blind_intro", "v_paraphrase"):
        played = transcripts(adapter_of(folder, Variant("obs_variant", {"kind": kind})), tasks, plans)
        for one, other in zip(played, standard, strict=True):
            assert [step.admissible for step in one] == [step.admissible for step in other]
            assert [step.text for step in one] != [step.text for step in other]
            assert one[0].info["instruction"] == other[0].info["instruction"]


def test_clients_of_other_scenes_meet_one_wording_and_the_same_games(folder):
    plain = adapter_of(folder)
    tasks = plain.tasks("train")
    scenes = len({task.meta["scene"] for task in tasks})
    mine = shard(tasks, 1, 2, "scene_disjoint", tasks_per_client=4, env_div=1.0, scenes_per_client=scenes)
    adapter = adapter_of(folder, mine.variant)
    said, worded = (
        [steps[0].info["instruction"] for steps in transcripts(one, tasks, [[]] * len(tasks))]
        for one in (plain, adapter)
    )
    assert any(" some " in text or text.startswith(("find ", "examine ")) for text in said)
    assert not any(" some " in text or text.startswith(("find ", "examine ")) for text in worded)
    by_household = {}
    for task, text in zip(tasks, worded, strict=True):
        by_household.setdefault(task.id.partition("_trial_")[0], set()).add(text)
    assert {len(texts) for texts in by_household.values()} == {1}
    played = transcripts(adapter, tasks, [adapter.oracle(task) for task in tasks])
    assert all(steps[-1].info["success"] for steps in played)


def test_worlds_keep_the_contract(folder):
    for arm, kind in (("dyn_variant", "v_both"), ("goal_variant", "v_both"), ("obs_variant", "v_paraphrase")):
        assert (arm, kind) in KINDS
        assert check(adapter_of(folder, Variant(arm, {"kind": kind})), episodes=2, splits=("train", "valid_seen")) == []


def test_a_game_that_breaks_while_a_run_goes_on_costs_its_own_episodes(folder, tmp_path):
    for name in households()[:2]:
        write(tmp_path, "train", name, published(modern(name), generate(name).goal))
    adapter = adapter_of(tmp_path)
    tasks = adapter.tasks("train")
    broken, whole = tasks
    path = tmp_path / broken.meta["game"]
    path.write_text(json.dumps({**games.read(path), "grammar": 3}))

    async def both():
        ways = (play(adapter, task, [], seed=0) for task in (broken, whole))
        return await asyncio.gather(*ways, return_exceptions=True)

    lost, kept = asyncio.run(both())
    assert str(lost).startswith(f"{path}: grammar: must be a text")
    assert kept[0].info["instruction"]
