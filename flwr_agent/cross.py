"""The cross-evaluation matrix: what each client's training is worth in every other client's world."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from flwr_agent.config import RunConfig
from flwr_agent.errors import ConfigError
from flwr_agent.requests import TrainRequest
from flwr_agent.seeds import rng
from flwr_agent.world import to_adapter, to_shard


@dataclass(frozen=True, kw_only=True, slots=True)
class CrossEvaluation:
    """Success by (client that trained, client whose world and tasks were played).

    Example:
        >>> CrossEvaluation(clients=[0, 1], num_tasks=8, temperature=0.4, before=[0.1, 0.2], after=[[0.5, 0.2], [0.1, 0.6]])
    """

    clients: list[int]
    num_tasks: int
    """Tasks of each client's shard, the same for every policy and played with the same seeds."""
    temperature: float
    before: list[float]
    """Success of the policy that all clients start from."""
    after: list[list[float]]
    """`[i][j]` success of that policy after one local round of client `clients[i]`, in the world of `clients[j]`."""


def cross_evaluate(
    config: RunConfig, clients: Sequence[int], num_tasks: int, *, report: Callable[[str], None] = lambda _: None
) -> CrossEvaluation:
    """Train `model.path` for one local round by each client in turn, and play every policy in every client's world.

    Raises:
        ConfigError: a client that does not exist, or a configuration that does not fit.
    """
    from flwr_agent.rl.learner import Learner, initial_arrays

    for client in clients:
        if not 0 <= client < config.federation.total_clients:
            last = config.federation.total_clients - 1
            raise ConfigError("cross-clients", client, f"there are clients 0 to {last} (federation.total_clients)")
    learner, tasks = Learner(config), to_adapter(config).tasks("train")
    by_id = {task.id: task for task in tasks}
    shards = [to_shard(config, tasks, client) for client in clients]
    samples = [
        [by_id[i] for i in rng("cross", shard.client_id).permutation(shard.task_ids)[:num_tasks]] for shard in shards
    ]

    def success() -> list[float]:
        rates: list[float] = []
        for shard, sample in zip(shards, samples, strict=True):
            episodes = learner.play(sample, purpose="cross", temperature=config.evaluation.temperature, shard=shard)
            rates.append(sum(episode.success for episode in episodes) / len(episodes))
        return rates

    report("playing before training")
    before, start, after = success(), initial_arrays(config), []
    request = TrainRequest(
        experiment="cross", round=1, client_id=0, config=config, arrays=start, base_digest=learner.base_digest
    )
    for client in clients:
        report(f"training client {client} and playing its policy")
        learner.train(replace(request, client_id=client))
        after.append(success())
    return CrossEvaluation(
        clients=list(clients),
        num_tasks=min(map(len, samples)),
        temperature=config.evaluation.temperature,
        before=before,
        after=after,
    )
