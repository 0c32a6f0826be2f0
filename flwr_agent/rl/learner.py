"""The heavy half of a client: policy, trainer, generator and environments, built once and kept across rounds."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import numpy as np
import torch
from transformers import PreTrainedModel

from envs.base import EnvAdapter, Shard, Task
from flwr_agent.arrays import ACTOR, CRITIC, distance, part, prefixed
from flwr_agent.config import RunConfig
from flwr_agent.errors import ProtocolError
from flwr_agent.requests import Arrays, EvaluateReply, EvaluateRequest, InitialModel, TrainReply, TrainRequest
from flwr_agent.rl import critic, moments, spawn
from flwr_agent.rl.engine import to_engine
from flwr_agent.rl.episode import Episode, Group
from flwr_agent.rl.generate import GREEDY
from flwr_agent.rl.keep import best_and_worst
from flwr_agent.rl.lora import client_rank, cut
from flwr_agent.rl.model import identity, load_policy, locate
from flwr_agent.rl.rollout import Attempt, Rollout
from flwr_agent.rl.samples import to_samples
from flwr_agent.rl.stats import play_stats, rollout_stats
from flwr_agent.rl.trainer import Trainer
from flwr_agent.rl.weights import to_arrays, to_numpy
from flwr_agent.seeds import client_seed, pick, row_seeds, seed_for
from flwr_agent.world import to_adapter, to_shard, to_world


def initial_model(config: RunConfig) -> InitialModel:
    """Round 0 of a federation: the policy's own weights, or its adapters that change nothing yet; with PPO a critic's.

    The state of optimizers that are never reset is part of the model.
    """
    is_ppo = config.algorithm.name == "ppo"
    trained = critic.start(config) if is_ppo else None
    policy = load_policy(config)
    arrays = prefixed(ACTOR, to_arrays(policy))
    if is_ppo:
        arrays |= prefixed(CRITIC, to_arrays(critic.initial(cast("PreTrainedModel", policy), trained)))
    if config.trainer.optimizer_reset == "never":
        arrays |= moments.zeros(arrays)
    return InitialModel(arrays=arrays, base_digest=identity(policy))


def initial_arrays(config: RunConfig) -> Arrays:
    """The arrays of round 0."""
    return initial_model(config).arrays


class Learner:
    """Serves train and evaluate requests of one configuration; the state a request finds never shows in its answer."""

    def __init__(self, config: RunConfig):
        torch.set_num_threads(config.worker.torch_threads)
        torch.use_deterministic_algorithms(mode=not torch.cuda.is_available())
        self.config = config
        self._ranks = spawn.start_ranks(config)
        self.trainer = Trainer.load(config)
        self.chat, self.base_digest = self.trainer.chat, self.trainer.base_digest
        self.engine = to_engine(config, self.trainer.acting, self.chat, locate(config))
        self._adapters: dict[str, EnvAdapter] = {}

    def close(self) -> None:
        """End the other ranks; nothing is asked of this learner any more."""
        spawn.end_ranks(self._ranks)

    def train(self, request: TrainRequest) -> TrainReply:
        """One client-round: load, then E times roll out and update.

        Raises:
            ProtocolError: the weights do not fit, or this host's base model is not the server's.
        """
        config, clock = request.config, _Clock()
        engine, seam = self.engine, self.trainer.seam
        switching_s, scoring_s = engine.switching_s, seam.scoring_s
        needs_base = config.algorithm.kl_coef and config.algorithm.kl_anchor == "base"
        if (needs_base or config.model.lora.rank) and request.base_digest != self.base_digest:
            raise ProtocolError(
                "the base model here is not the server's, so KL term or adapter would differ; use the same model.path files"
            )
        with clock("load"):
            values = part(request.arrays, CRITIC)
            before = self._own_arrays(request)
            self.trainer.begin_round(before, critic=values, prox_mu=config.strategy.prox_mu)
            if config.trainer.optimizer_reset == "never":
                moments.load(self.trainer, request.arrays)
        shard = to_shard(config, self._adapter(config, None).tasks("train"), request.client_id)
        steps, num_examples = [], 0
        for epoch, seeds in enumerate(self._row_seeds(request)):
            with clock("rollout"):
                groups = self._roll_out(
                    shard, seeds, seed_for(config.seed, "rollout", request.round, request.client_id, epoch)
                )
            step_seed = seed_for(config.seed, "update", request.round, request.client_id, epoch)
            samples = to_samples(groups, config.algorithm, config.rollout, seed=step_seed)
            with clock("update"):
                stats = self.trainer.train(samples, seed=step_seed)
            episodes = [episode for group in groups for episode in group.episodes]
            steps.append(stats | self._stats(episodes) | rollout_stats(groups, samples, config))
            num_examples += len(samples)
        clock.split("rollout", "sync", engine.switching_s - switching_s)
        clock.split("update", "logprobs", seam.scoring_s - scoring_s)
        with clock("export"):
            arrays = self._arrays()
        metrics = {name: float(np.mean([step[name] for step in steps])) for name in steps[0]}
        metrics["update_norm"] = distance(before, part(arrays, ACTOR))
        return TrainReply(
            round=request.round,
            client_id=request.client_id,
            arrays=arrays,
            num_examples=num_examples,
            metrics=metrics | clock.seconds(),
        )

    def evaluate(self, request: EvaluateRequest) -> EvaluateReply:
        """Play the first `evaluation.tasks` held-out tasks, sampled and greedy, in the standard world."""
        config = request.config.evaluation
        self.trainer.take(part(request.arrays, ACTOR))
        adapter = self._adapter(request.config, None)
        tasks = adapter.tasks("val")[: config.tasks]
        modes = {"sampled": config.temperature} | ({"greedy": GREEDY} if config.greedy else {})
        start = time.perf_counter()
        attempts = [
            Attempt(task, i, seed_for("evaluation", i), t) for t in modes.values() for i, task in enumerate(tasks)
        ]
        episodes = self._played(adapter, attempts)
        metrics: dict[str, float] = {"time/evaluate": time.perf_counter() - start, "tasks": float(len(tasks))}
        outcomes: dict[str, tuple[float, ...]] = {}
        kept: list[dict[str, Any]] = []
        for mode, played in zip(modes, _split(episodes, len(tasks)), strict=True):
            prefix = "" if mode == "sampled" else f"{mode}/"
            outcomes |= {
                f"{mode}/success": tuple(float(e.success) for e in played),
                f"{mode}/task_score": tuple(e.score for e in played),
            }
            metrics |= {f"{prefix}{name}": value for name, value in self._stats(played).items()}
            kept += best_and_worst(played, tasks, self.chat, mode=mode, count=request.config.report.episodes)
        return EvaluateReply(
            round=request.round,
            metrics=metrics,
            outcomes=outcomes,
            tasks=tuple(task.id for task in tasks),
            types=tuple(str(task.meta.get("category", "")) for task in tasks),
            episodes=tuple(kept),
        )

    def play(
        self, tasks: Sequence[Task], *, purpose: str, temperature: float, shard: Shard | None = None
    ) -> list[Episode]:
        """One episode per task with the weights as they are, in a client's world or in the standard one.

        Seeds depend on the purpose and the task alone, not on what else is played.
        """
        attempts = [Attempt(task, 0, seed_for(purpose, task.id), temperature) for task in tasks]
        return self._played(self._adapter(self.config, shard), attempts)

    def _stats(self, episodes: Sequence[Episode]) -> dict[str, float]:
        return play_stats(episodes, self.config.rollout, self.chat.eos_ids)

    def _arrays(self) -> Arrays:
        trainer = self.trainer
        values = prefixed(CRITIC, to_numpy(trainer.values("critic"))) if trainer.critic else {}
        is_kept = self.config.trainer.optimizer_reset == "never"
        return prefixed(ACTOR, trainer.weights()) | values | (moments.to_arrays(trainer) if is_kept else {})

    def _own_arrays(self, request: TrainRequest) -> Arrays:
        """The model the client starts from: the server's, cut to the client's own rank where it has adapters."""
        arrays = part(request.arrays, ACTOR)
        rank = client_rank(request.config, request.client_id)
        return cut(arrays, rank) if rank != request.config.model.lora.rank else arrays

    def _row_seeds(self, request: TrainRequest) -> list[list[int]]:
        config = request.config
        data_seed = client_seed(config.seed, request.round, request.client_id)
        return row_seeds(data_seed, config.trainer.tasks_per_step, config.federation.epochs_per_round)

    def _roll_out(self, shard: Shard, seeds: Sequence[int], seed: int) -> list[Group]:
        config = self.config
        adapter = self._adapter(config, shard)
        by_id = {task.id: task for task in adapter.tasks("train")}
        tasks = [by_id[pick(s, shard.task_ids)] for s in seeds]
        size = config.algorithm.group_size
        attempts = [
            Attempt(task, i, seed_for(seed, slot), config.rollout.temperature)
            for slot, task in enumerate(tasks)
            for i in range(size)
        ]
        episodes = self._played(adapter, attempts)
        return [Group(task.id, part) for task, part in zip(tasks, _split(episodes, size), strict=True)]

    def _played(self, adapter: EnvAdapter, attempts: Sequence[Attempt]) -> list[Episode]:
        """Episodes by the policy as it is now."""
        with self.engine.awake(self.trainer.whole()) as engine:
            return Rollout(adapter, engine, self.chat, self.config.rollout).play(attempts)

    def _adapter(self, config: RunConfig, shard: Shard | None) -> EnvAdapter:
        """One client's world, or the standard one, in which all held-out tasks are played."""
        key = repr((config.env, config.prompt, shard.variant if shard else None))
        if key not in self._adapters:
            self._adapters[key] = to_world(config, shard) if shard else to_adapter(config)
        return self._adapters[key]


class _Clock:
    """Seconds by stage of one request."""

    def __init__(self) -> None:
        self._start = time.perf_counter()
        self._spent: dict[str, float] = defaultdict(float)

    @contextmanager
    def __call__(self, stage: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self._spent[stage] += time.perf_counter() - start

    def split(self, stage: str, part: str, seconds: float) -> None:
        """Count `seconds` of a stage as those of a part of it."""
        self._spent[stage] -= seconds
        self._spent[part] += seconds

    def seconds(self) -> dict[str, float]:
        """`time/<stage>` -> seconds; `idle` is what is in none."""
        idle = time.perf_counter() - self._start - sum(self._spent.values())
        return {f"time/{stage}": spent for stage, spent in (self._spent | {"idle": idle}).items()}


def _split(episodes: Sequence[Episode], size: int) -> list[list[Episode]]:
    return [list(episodes[at : at + size]) for at in range(0, len(episodes), size)]
