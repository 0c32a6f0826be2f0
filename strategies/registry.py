"""Strategies by name."""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import entry_points

from flwr_agent.config import RunConfig
from flwr_agent.errors import ConfigError
from flwr_agent.modes import FEDERATED
from strategies.base import RoundStrategy
from strategies.fedavg import FedAvg
from strategies.fedprox import FedProx

STRATEGIES: dict[str, type[RoundStrategy]] = {"fedavg": FedAvg, "fedprox": FedProx}
ALONE = "fedavg"
ENTRY_POINTS = "flwr_agent.strategies"


def load(config: RunConfig) -> RoundStrategy:
    """The strategy that `strategy.name` names: one of ours, an entry point of an installed package, or module:Class.

    A baseline has one client and nothing to average, so it takes FedAvg, whose mean of one is that one.

    Raises:
        ConfigError: there is none of that name, or it is not a `RoundStrategy`.
    """
    return _find(config.strategy.name if config.federation.mode == FEDERATED else ALONE).from_config(config)


def _find(name: str) -> type[RoundStrategy]:
    if name in STRATEGIES:
        return STRATEGIES[name]
    installed = {point.name: point for point in entry_points(group=ENTRY_POINTS)}
    try:
        if name in installed:
            found = installed[name].load()
        else:
            module, _, attribute = name.partition(":")
            found = getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        fix = f"no such strategy ({error})" if ":" in name else "no such strategy; third parties' are module:Class"
        raise ConfigError("strategy.name", name, fix, allowed=[*STRATEGIES, *installed]) from error
    if not (isinstance(found, type) and issubclass(found, RoundStrategy)):
        raise ConfigError("strategy.name", name, "must be a subclass of strategies.RoundStrategy")
    return found
