"""Third parties' plain environments, named in a configuration as `worlds:Class`."""

from __future__ import annotations

from envs.base import Task

Answer = tuple[str, float, bool, bool, dict[str, object]]


class Parrot:
    """Say the task's name; counts its episodes, and nobody can demonstrate it."""

    num_episodes = 0

    def tasks(self, split: str) -> list[Task]:
        return [Task(f"{split}-{i}", split, {"category": "any"}) for i in range(20)]

    def reset(self, task: Task, seed: int) -> str:
        Parrot.num_episodes += 1
        self.wanted = task.id
        return f"say {task.id}"

    def step(self, action: str) -> Answer:
        return "over", float(action == self.wanted), True, False, {}


class TaughtParrot(Parrot):
    """The same with an oracle."""

    def oracle(self, task: Task) -> list[str]:
        return [task.id]


class DyingParrot(TaughtParrot):
    """The same, failing in the middle."""

    def step(self, action: str) -> Answer:
        raise RuntimeError("the parrot is no more")
