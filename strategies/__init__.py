"""How a round is run and how updates become a model: Flower strategies over numpy arrays."""

from strategies.base import RoundStrategy
from strategies.fedavg import FedAvg
from strategies.fedprox import FedProx
from strategies.late import LateFedAvg
from strategies.lora import LoraAverage, LoraFrozenA
from strategies.privacy import CentralDP
from strategies.registry import load
from strategies.robust import FedMedian, FedTrimmedAvg, Krum
from strategies.rounds import ClientOutcome, Observer, Round, Status
from strategies.server_opt import FedAdagrad, FedAdam, FedAvgM, FedYogi

__all__ = [
    "CentralDP",
    "ClientOutcome",
    "FedAdagrad",
    "FedAdam",
    "FedAvg",
    "FedAvgM",
    "FedMedian",
    "FedProx",
    "FedTrimmedAvg",
    "FedYogi",
    "Krum",
    "LateFedAvg",
    "LoraAverage",
    "LoraFrozenA",
    "Observer",
    "Round",
    "RoundStrategy",
    "Status",
    "load",
]
