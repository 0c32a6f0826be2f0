"""Optimizers' state as arrays that travel beside the weights, so that a life of many rounds needs no process.

Used where one client's optimizers are never reset: what a worker remembers dies with it, what the model carries does not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import cast

import numpy as np
import torch

from flwr_agent.arrays import ACTOR, CRITIC
from flwr_agent.errors import ProtocolError
from flwr_agent.requests import Arrays
from flwr_agent.rl.optimize import Optimization
from flwr_agent.rl.trainer import Trainer
from flwr_agent.rl.weights import trained

PREFIX = "optimizer/"
"""Group prefix of these arrays in a record."""
NAMES = ("step", "exp_avg", "exp_avg_sq")
"""AdamW's state of one parameter."""


def zeros(weights: Mapping[str, np.ndarray]) -> Arrays:
    """The state before the first step: `optimizer/exp_avg/NAME` and its like for every array, fp32."""
    return {
        f"{PREFIX}{key}/{name}": np.zeros(() if key == "step" else values.shape, "f4")
        for name, values in weights.items()
        for key in NAMES
    }


def to_arrays(trainer: Trainer) -> Arrays:
    """The state after a step (copies)."""
    return {
        f"{PREFIX}{key}/{name}": state[key].detach().float().cpu().numpy().copy()
        for name, _, state in _states(trainer)
        for key in NAMES
    }


def load(trainer: Trainer, arrays: Mapping[str, np.ndarray]) -> None:
    """Go on from this state.

    Raises:
        ProtocolError: an array is missing, or has another shape than its parameter.
    """
    for name, p, state in _states(trainer):
        for key in NAMES:
            values = arrays.get(f"{PREFIX}{key}/{name}")
            if values is None or values.shape != (() if key == "step" else tuple(p.shape)):
                raise ProtocolError(f"the optimizer's {key} of {name} is missing or does not fit the model")
            # AdamW counts its steps on the host.
            state[key] = torch.tensor(values, device="cpu" if key == "step" else p.device)


def _states(trainer: Trainer) -> Iterator[tuple[str, torch.nn.Parameter, dict[str, torch.Tensor]]]:
    """Name, parameter and optimizer state of everything that is trained."""
    parts = {ACTOR: trainer.actor} | ({CRITIC: trainer.critic.optimization} if trainer.critic else {})
    for prefix, optimization in parts.items():
        own = cast("Optimization", optimization)  # DeepSpeed's are always reset
        for name, p in trained(own.model).items():
            yield prefix + name, p, own.optimizer.state[p]
