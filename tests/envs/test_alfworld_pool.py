"""Worker processes: the same transcripts as in this process, and failures that stay in the episode they belong to."""

import asyncio
import gc
import json

import pytest

from envs.base import Task, Variant
from envs.check import check, play
from envs.minihouse import MiniHouse
from envs.minihouse.rules import Rules
from envs.registry import create
from flwr_agent.errors import DataError, EnvError
from tests.envs.alfworld_games import crowded, modern, old_vocabulary, write

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(900)]
pytest.importorskip("textworld", reason="needs the extra alfworld")

from envs.alfworld.pool import Pool  # noqa: E402


@pytest.fixture(scope="module")
def adapter():
    return create("alfworld", {"workers": 2})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("alfworld")
    for number, form in enumerate([dict, old_vocabulary, crowded, dict, old_vocabulary, crowded]):
        write(folder, "train", f"demo-{number}", form(modern(f"demo-{number}")))
        write(folder, "valid_seen", f"demo-{number + 6}", form(modern(f"demo-{number + 6}")))
    write(folder, "valid_unseen", "demo-12", modern("demo-12"))
    return folder


def test_generated_games_keep_the_contract(adapter):
    assert check(adapter, episodes=1) == []


def test_a_data_folder_keeps_the_contract_in_both_vocabularies(folder):
    adapter = create("alfworld", {"data_path": str(folder), "workers": 1})
    assert check(adapter, episodes=2, splits=("train", "valid_seen", "valid_unseen")) == []
    assert adapter.tasks("val") == adapter.tasks("valid_seen")


def test_eight_groups_of_four_episodes_at_once_read_as_those_of_minihouse(adapter):
    async def both():
        local = MiniHouse()
        tasks = [task for task in local.tasks("train")[:8] for _ in range(4)]
        actions = [local.oracle(task) for task in tasks]
        remote = await asyncio.gather(*(_play(adapter, *pair) for pair in zip(tasks, actions, strict=True)))
        return remote, [await _play(local, *pair) for pair in zip(tasks, actions, strict=True)]

    remote, local = asyncio.run(both())
    assert remote == local


async def _play(adapter, task, actions):
    env = adapter.make()
    steps = [await env.reset(task, seed=0), *[await env.step(action) for action in actions]]
    await env.close()
    return steps


def test_a_variant_reaches_the_engine():
    variant = Variant("obs_variant", {"kind": "v_paraphrase"})
    adapter, local = create("alfworld", {"workers": 1}, variant=variant), MiniHouse(variant=variant)
    task = local.tasks("train")[3]
    steps = asyncio.run(play(adapter, task, adapter.oracle(task), seed=0))
    assert steps == asyncio.run(play(local, task, local.oracle(task), seed=0))
    assert steps[1].text.startswith("You walk over to ")


def test_a_game_without_a_goal_fails_with_its_file_and_field(folder, tmp_path):
    content = modern("demo-3")
    content["pddl_problem"] = content["pddl_problem"].partition("(:goal")[0] + ")"
    game = write(tmp_path, "train", "demo-3", content)
    adapter = create("alfworld", {"data_path": str(tmp_path), "workers": 1})
    with pytest.raises(DataError, match=r"game\.tw-pddl: pddl_problem: has no goal"):
        asyncio.run(play(adapter, adapter.tasks("train")[0], [], seed=0))
    assert (tmp_path / "train" / game).exists()


def test_a_broken_problem_fails_its_episode_and_the_worker_plays_on(tmp_path):
    write(tmp_path, "train", "demo-3", {**modern("demo-3"), "pddl_problem": "(define (nonsense) (:goal (x)))"})
    write(tmp_path, "train", "demo-4", modern("demo-4"))
    adapter = create("alfworld", {"data_path": str(tmp_path), "workers": 1})
    tasks = {task.meta["category"]: task for task in adapter.tasks("train")}
    with pytest.raises(EnvError, match="alfworld: "):
        asyncio.run(play(adapter, tasks["pick_heat_then_place_in_recep"], [], seed=0))
    good = tasks["pick_cool_then_place_in_recep"]
    assert asyncio.run(play(adapter, good, adapter.oracle(good), seed=0))[-1].info["success"]


def test_a_dead_worker_fails_its_episodes_and_is_replaced():
    async def scenario():
        pool = Pool(1)
        engine, task = pool.engine(folder=None, rules=Rules()), Task("train-3", "train")
        first = await engine.load(task)
        pool.lease(task.id).kill()
        with pytest.raises(EnvError, match="died"):
            await engine.act("look")
        assert await engine.load(task) == first
        await engine.close()
        await engine.close()
        pool.close()

    asyncio.run(scenario())


def test_an_answer_that_takes_too_long_stops_the_worker(monkeypatch):
    monkeypatch.setattr("envs.alfworld.pool.TIMEOUT_S", 0.01)

    async def scenario():
        pool = Pool(1)
        with pytest.raises(EnvError, match="no answer"):
            await pool.engine(folder=None, rules=Rules()).load(Task("train-3", "train"))
        assert not pool._workers[0].is_alive
        pool.close()

    asyncio.run(scenario())


def test_slots_are_given_back_once_and_used_again():
    async def scenario():
        pool, task = Pool(1), Task("train-3", "train")
        for _ in range(3):
            engine = pool.engine(folder=None, rules=Rules())
            await engine.load(task)
            await engine.close()
            await engine.close()
        worker = pool.lease(task.id)
        assert worker._free_slots == [0]
        pool.close()

    asyncio.run(scenario())


def test_workers_end_with_their_pool():
    pool = Pool(2)
    workers = [pool.lease(f"train-{number}") for number in range(8)]
    assert all(worker.is_alive for worker in workers)
    del pool
    gc.collect()
    assert not any(worker.is_alive for worker in workers)


def test_one_game_always_plays_in_one_worker():
    pool = Pool(4)
    assert pool.lease("train-3") is pool.lease("train-3")
    assert len({id(pool.lease(f"train-{number}")) for number in range(40)}) == 4
    pool.close()


def test_the_fingerprint_names_the_games(folder, tmp_path):
    one = create("alfworld", {"data_path": str(folder)}).fingerprint()
    assert one == create("alfworld", {"data_path": str(folder)}).fingerprint()
    write(tmp_path, "train", "demo-1", json.loads(json.dumps(modern("demo-1"))))
    assert one != create("alfworld", {"data_path": str(tmp_path)}).fingerprint()
    assert one != create("alfworld", {}).fingerprint()


def test_clients_of_one_process_share_their_workers():
    assert create("alfworld", {"workers": 2})._pool is create("alfworld", {"workers": 2}, style="compact")._pool
