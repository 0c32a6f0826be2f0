import json
import re
from dataclasses import asdict, replace

import numpy as np
import pytest
from rich.console import Console

from envs.base import Shard, Step, Task, Variant
from envs.tinyguess import TinyGuess
from flwr_agent import lens
from flwr_agent.config import resolve
from flwr_agent.cross import CrossEvaluation
from flwr_agent.errors import ConfigError
from flwr_agent.lens_page import to_html

GUESS = {"env.name": "tinyguess", "federation.total_clients": 6, "partition.tasks_per_client": 40}


class Walk(TinyGuess):
    """Walk to cell 8; a world may have a ramp that skips a cell."""

    name, version = "walk", "1"

    def __init__(self, *, style, variant=None):
        self.ramp = None if variant is None else variant.params["ramp"]

    def tasks(self, split):
        return [Task(f"walk-{i}", split, {"category": "<b>walk</b>"}) for i in range(12)]

    def oracle(self, task):
        return ["right"] * 8

    def make(self):
        return WalkEnv(self.ramp)


class WalkEnv:
    def __init__(self, ramp):
        self.ramp, self.cell = ramp, 0

    async def reset(self, task, *, seed):
        self.cell = 0
        return Step("0")

    async def step(self, action):
        self.cell += 2 if self.cell == self.ramp else 1
        return Step(str(self.cell), terminated=self.cell >= 8, info={"success": self.cell >= 8})

    async def close(self):
        pass


def ramps(tasks, client_id, num_clients, *, seed, tasks_per_client):
    mine = tuple(task.id for task in tasks[client_id::num_clients])
    return Shard(client_id, mine, Variant("ramps", {"ramp": client_id % 2}))


WALK = {
    "env.name": f"{__name__}:Walk",
    "partition.strategy": f"{__name__}:ramps",
    "federation.total_clients": 4,
    "partition.tasks_per_client": 3,
}


def test_the_lens_says_what_each_client_holds():
    found = lens.look(resolve(GUESS, {"partition.strategy": "preference", "partition.omega": 0.9}))
    assert [client.num_tasks for client in found.clients] == [40] * 6
    assert all(sum(client.mix.values()) == pytest.approx(1) for client in found.clients)
    assert found.knobs == {"omega": 0.9, "tasks_per_client": 40}
    assert found.num_held <= 240
    assert found.metrics.preference > 20 * found.iid_floor.preference
    assert found.leak == {"coverage": 0.0}
    assert {client.world for client in found.clients} == {None}


def test_overlap_is_symmetric_with_a_full_diagonal():
    overlap = np.array(lens.look(resolve(GUESS, {"partition.tasks_per_client": 1000})).overlap)
    assert (overlap == overlap.T).all()
    assert overlap.diagonal().tolist() == [1.0] * 6
    assert overlap[0, 1] > 0


def test_labels_add_the_difficulty_axis(tmp_path):
    rows = [{"task_info": {"task_id": f"guess-train-{i}"}, "traj_info": {"success": i < 3 * 666}} for i in range(4000)]
    path = tmp_path / "labels.json"
    path.write_text(json.dumps({"trajectories": rows}))
    found = lens.look(resolve(GUESS), labels=path)
    assert [client.easy_share for client in found.clients] == [1.0, 1.0, 1.0, 0.0, 0.0, 0.0]
    assert found.metrics.hardness == pytest.approx(0.25)
    assert set(found.leak) == {"preference", "coverage", "hardness"}


def test_worlds_are_listed_once_and_compared_in_pairs():
    found = lens.look(resolve(WALK), play_tasks=2)
    assert found.worlds == [{"name": "ramps", "ramp": 0}, {"name": "ramps", "ramp": 1}]
    assert [client.world for client in found.clients] == [0, 1, 0, 1]
    assert found.world_disagreement["0-1"].rate == pytest.approx(1 / 6)
    assert found.world_disagreement["0-1"].num_unforced == 2


@pytest.mark.parametrize(("turns", "share"), [(7, "100%"), (6, "0%")])
def test_an_oracle_plays_one_world_of_each_kind_against_the_clock(turns, share):
    found = lens.look(resolve(WALK, {"rollout.max_turns": turns}), play_tasks=3)
    assert [(one.num_clients, one.num_tasks, one.num_solved) for one in found.winnable.values()] == [(2, 3, 3)] * 2
    assert lens.oracle_rows(found) == [(world, "2", "100%", share, "7.0") for world in ("0", "1")]


SHOP = {
    "federation.total_clients": 12,
    "partition.strategy": "rank_wrapper",
    "env.search_return_n": 200,
}


def test_what_cannot_be_won_in_time_is_shown():
    found = lens.look(resolve(SHOP), play_tasks=4)
    assert len(found.worlds) == 12
    kinds = {found.worlds[int(at)]["kind"]: one for at, one in found.winnable.items()}
    assert {kind: one.num_solved for kind, one in kinds.items()} == dict.fromkeys(kinds, 4)
    assert {kind: one.share_in_time for kind, one in kinds.items()} == {
        "default": 1.0, "shuffle": 1.0, "invert": 0.0, "partial": 1.0,
    }  # fmt: skip
    assert sum(one.num_clients for one in kinds.values()) == 12
    assert len(found.world_disagreement) == 6
    console = Console(width=120)
    with console.capture() as captured:
        lens.show(found, console)
    assert "invert" in captured.get()
    assert "0%" in captured.get()


CROSS = CrossEvaluation(clients=[0, 2], num_tasks=5, temperature=0.4, before=[0.1, 0.2], after=[[0.6, 0.2], [0.1, 0.8]])


def test_the_page_is_self_contained_and_escaped(tmp_path):
    found = replace(lens.look(resolve(WALK), play_tasks=1), cross=CROSS)
    text = to_html(found)
    assert text.count("<svg") == 5
    assert not re.search(r"<script|<link|(src|href)=\"(?!#|data:)", text)
    assert "<b>walk</b>" not in text
    assert "&lt;b&gt;walk&lt;/b&gt; 100" in text
    assert "<td>nobody yet</td><td>0.10</td><td>0.20</td>" in text
    assert "<td>client 2</td><td>0.10</td><td>0.80</td>" in text
    assert json.loads(json.dumps(asdict(found))) == asdict(found)


def test_the_same_partition_gives_the_same_page():
    pages = {to_html(lens.look(resolve(WALK), play_tasks=1)) for _ in range(2)}
    assert len(pages) == 1


def test_the_terminal_shows_axes_the_first_clients_and_the_matrix():
    console = Console(width=120)
    many = replace(lens.look(resolve(GUESS, {"federation.total_clients": 25})), cross=CROSS)
    with console.capture() as captured:
        lens.show(many, console)
    text = captured.get()
    assert "tinyguess · uniform (tasks_per_client=40) · 4000 of 4000 tasks held by 25 clients" in text
    assert "no labels" in text
    assert "5 more clients are on the page" in text
    assert "nobody yet" in text


def test_worlds_without_oracle_or_admissible_actions_cannot_be_compared(monkeypatch):
    monkeypatch.setattr(Walk, "oracle", lambda self, task: None)
    with pytest.raises(ConfigError, match=r"env\.name='walk': has neither an oracle nor admissible actions"):
        lens.look(resolve(WALK), play_tasks=1)
