"""Which tasks and which world each client gets: pure functions of (tasks, strategy, seed).

Every client computes its own shard, and the same one whoever computes it. Two axes: *task level* strategies give
clients different tasks in one world; *environment level* strategies give them the tasks of `uniform` and different
worlds (`Shard.variant`).
"""

from envs.partition.registry import Partition, knobs, shard

__all__ = ["Partition", "knobs", "shard"]
