"""The baselines of a federation, each from its own configuration and one more key."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flwr_agent.config import RunConfig

FEDERATED, CENTRALIZED, LOCAL = "federated", "centralized", "local"


def settled(config: RunConfig) -> RunConfig:
    """The configuration with what `federation.mode` decides written out; settling twice changes nothing.

    A baseline is the same trainer with one client and nothing to average: `centralized` owns every training task and
    one optimizer life, `local` is one client of the federation on its own. Its weights travel as they are. `federation.budget` says what is equal to
    the federated run: the optimizer steps of one client, or the samples of all clients of a round.

    Example:
        >>> settled(resolve({"federation.mode": "centralized"})).federation.total_clients
        1
    """
    mode = config.federation.mode
    if config.trainer.optimizer_reset == "auto":
        kept = "never" if mode == CENTRALIZED else "per_round"
        config = replace(config, trainer=replace(config.trainer, optimizer_reset=kept))
    return config if mode == FEDERATED else _alone(config)


def _alone(config: RunConfig) -> RunConfig:
    fed, trainer = config.federation, config.trainer
    if fed.budget == "samples":
        times = fed.clients_per_round
        trainer = replace(
            trainer, tasks_per_step=times * trainer.tasks_per_step, minibatch_rows=times * trainer.minibatch_rows
        )
    total = 1 if fed.mode == CENTRALIZED else fed.total_clients
    who = replace(fed, total_clients=total, clients_per_round=1, extra_clients=0, min_clients=1, weights="uniform")
    sent = replace(config.strategy, prox_mu=0.0, payload="value", compression="none", error_feedback=False)
    return replace(config, federation=who, trainer=trainer, strategy=sent, privacy=type(config.privacy)())
