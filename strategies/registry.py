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
from strategies.late import LateFedAvg
from strategies.lora import LoraAverage, LoraFrozenA
from strategies.robust import FedMedian, FedTrimmedAvg, Krum
from strategies.server_opt import FedAdagrad, FedAdam, FedAvgM, FedYogi

STRATEGIES: dict[str, type[RoundStrategy]] = {
    "fedavg": FedAvg,
    "fedprox": FedProx,
    "fedavg_late": LateFedAvg,
    "fedavgm": FedAvgM,
    "fedadagrad": FedAdagrad,
    "fedadam": FedAdam,
    "fedyogi": FedYogi,
    "fedmedian": FedMedian,
    "fedtrimmedavg": FedTrimmedAvg,
    "krum": Krum,
    "lora_average": LoraAverage,
    "lora_frozen_a": LoraFrozenA,
}
ALONE = "fedavg"
ENTRY_POINTS = "flwr_agent.strategies"


def load(config: RunConfig) -> RoundStrategy:
    """The strategy that `strategy.name` names: one of ours, an entry point of an installed package, or module:Class.

    A baseline has one client and nothing to average, so it takes FedAvg, whose mean of one is that one.

    Raises:
        ConfigError: there is none of that name, it is not a `RoundStrategy`, or a third party's breaks when it is
            imported or made.
    """
    name = config.strategy.name if config.federation.mode == FEDERATED else ALONE
    try:
        return _find(name).from_config(config)
    except ConfigError:
        raise
    except Exception as error:
        raise ConfigError(
            "strategy.name", name, f"cannot be made: {type(error).__name__}: {_one_line(error)}"
        ) from error


def _find(name: str) -> type[RoundStrategy]:
    if name in STRATEGIES:
        return STRATEGIES[name]
    installed = {point.name: point.value for point in entry_points(group=ENTRY_POINTS)}
    module, colon, attribute = installed.get(name, name).partition(":")
    if not colon:
        fix = "no such strategy; third parties' are module:Class"
        raise ConfigError("strategy.name", name, fix, allowed=[*STRATEGIES, *installed])
    try:
        found = getattr(import_module(module), attribute, None)
    except Exception as error:
        raise ConfigError(
            "strategy.name", name, f"cannot be imported: {type(error).__name__}: {_one_line(error)}"
        ) from error
    if not (isinstance(found, type) and issubclass(found, RoundStrategy)):
        fix = f"module {module} has no subclass {attribute!r} of strategies.RoundStrategy"
        raise ConfigError("strategy.name", name, fix)
    return found


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
