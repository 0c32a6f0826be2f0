"""An optimizer's state as arrays that travel beside the weights, so that a life of many rounds needs no process.

Used where one client's optimizer is never reset: what a worker remembers dies with it, what the model carries does not.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch

from flwr_agent.errors import ProtocolError

PREFIX = "optimizer/"
"""Group prefix of these arrays in a record."""
NAMES = ("step", "exp_avg", "exp_avg_sq")
"""AdamW's state of one parameter."""

Parameters = Mapping[str, torch.nn.Parameter]


def zeros(parameters: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The state before the first step: `optimizer/exp_avg/NAME` and its like, fp32."""
    shapes = {name: {"step": ()} | dict.fromkeys(NAMES[1:], values.shape) for name, values in parameters.items()}
    return {f"{PREFIX}{key}/{name}": np.zeros(shape[key], "f4") for name, shape in shapes.items() for key in NAMES}


def to_arrays(optimizer: torch.optim.Optimizer, parameters: Parameters) -> dict[str, np.ndarray]:
    """The state of an optimizer that has taken a step (copies)."""
    return {
        f"{PREFIX}{key}/{name}": optimizer.state[p][key].detach().float().cpu().numpy().copy()
        for name, p in parameters.items()
        for key in NAMES
    }


def load(optimizer: torch.optim.Optimizer, parameters: Parameters, arrays: Mapping[str, np.ndarray]) -> None:
    """Go on from this state.

    Raises:
        ProtocolError: an array is missing, or has another shape than its parameter.
    """
    for name, p in parameters.items():
        for key in NAMES:
            values = arrays.get(f"{PREFIX}{key}/{name}")
            if values is None or values.shape != (() if key == "step" else tuple(p.shape)):
                raise ProtocolError(f"the optimizer's {key} of {name} is missing or does not fit the model")
            # AdamW counts its steps on the host.
            optimizer.state[p][key] = torch.tensor(values, device="cpu" if key == "step" else p.device)
