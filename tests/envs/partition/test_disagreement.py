import asyncio

import pytest

from envs import registry
from envs.base import Task
from envs.partition.disagreement import Disagreement, disagreement


class Corridor:
    """Walk to cell 8; in the second kind of world a ramp leads from cell 3 to cell 5."""

    def __init__(self, *, ramp: bool = False):
        self.ramp = ramp

    def tasks(self, split):
        return [Task(f"walk-{i}", split, {"category": "walk"}) for i in range(3)]

    def reset(self, task, seed):
        self.cell = 0
        return "cell 0"

    def step(self, action):
        jump = 2 if self.ramp and self.cell == 3 else 1
        self.cell = max(0, self.cell + jump) if action == "right" else 0
        return f"cell {self.cell}", float(self.cell >= 8), self.cell >= 8, False, {}


def corridor(*, ramp: bool):
    return registry.create(f"{__name__}:Corridor", {"ramp": ramp})


def measure(first, second, policy, num_tasks=3, max_turns=20) -> Disagreement:
    tasks = first.tasks("train")[:num_tasks]
    return asyncio.run(disagreement(first, second, policy, tasks, seed=0, max_turns=max_turns))


def test_a_world_agrees_with_itself_everywhere():
    adapter = registry.create("tinyguess", {}, style="compact")
    found = measure(adapter, adapter, lambda task, view: "25")
    assert (found.rate, found.num_unforced) == (0.0, 0)
    assert found.num_compared > 0


def test_one_odd_transition_on_the_policys_way_is_counted_once():
    found = measure(corridor(ramp=False), corridor(ramp=True), lambda task, view: "right")
    assert found == Disagreement(num_compared=3 * 4, num_different=3, num_unforced=3 * 4)
    assert found.rate == pytest.approx(1 / 4)


def test_a_transition_that_the_policy_never_takes_counts_nothing():
    found = measure(corridor(ramp=False), corridor(ramp=True), lambda task, view: "left", max_turns=5)
    assert found == Disagreement(num_compared=15, num_different=0, num_unforced=0)


def test_worlds_that_meet_again_are_compared_again():
    def there_and_back(task, view):
        return "left" if view.observation == "cell 4" else "right"

    found = measure(corridor(ramp=False), corridor(ramp=True), there_and_back, num_tasks=1, max_turns=10)
    assert found == Disagreement(num_compared=8, num_different=2, num_unforced=2)


def test_the_policy_sees_the_whole_episode_so_far():
    seen = []

    def policy(task, view):
        seen.append((task.id, view.num_steps, view.history, view.instruction))
        return "right"

    measure(corridor(ramp=False), corridor(ramp=False), policy, num_tasks=1, max_turns=2)
    assert seen == [("walk-0", 0, (), "cell 0"), ("walk-0", 1, (("cell 0", "right"),), "cell 0")]
