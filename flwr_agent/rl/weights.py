"""A policy's values as arrays: what is trained travels, under names that its checkpoints use."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import torch

from flwr_agent.errors import ProtocolError

ADAPTER = "default"
"""PEFT's name of the one adapter; a checkpoint's names are without it."""
_INFIX = f".{ADAPTER}."


def trained(model: torch.nn.Module) -> dict[str, torch.nn.Parameter]:
    """The parameters that travel, tied ones once: all, or of a model with adapters those that are not frozen.

    Example:
        >>> sorted(trained(adapted))[0]
        'base_model.model.model.layers.0.mlp.down_proj.lora_A.weight'
    """
    return {name.replace(_INFIX, "."): p for name, p in model.named_parameters() if p.requires_grad}


def to_arrays(model: torch.nn.Module) -> dict[str, np.ndarray]:
    """The trained values by name, fp32 (copies)."""
    return to_numpy(trained(model).items())


def to_numpy(values: Iterable[tuple[str, torch.Tensor]]) -> dict[str, np.ndarray]:
    """Tensors as fp32 arrays (copies)."""
    return {name: value.detach().to("cpu", torch.float32, copy=True).numpy() for name, value in values}


def load_weights(model: torch.nn.Module, arrays: Mapping[str, np.ndarray]) -> None:
    """Copy trained values into a model in place.

    Raises:
        ProtocolError: if names or shapes are not the model's.
    """
    copy_into(trained(model), arrays)


@torch.no_grad()
def copy_into(own: Mapping[str, torch.Tensor], arrays: Mapping[str, np.ndarray]) -> None:
    """Copy values into tensors of the same names, in place.

    Raises:
        ProtocolError: if names or shapes differ.
    """
    check_fit({name: tuple(p.shape) for name, p in own.items()}, arrays)
    for name, p in own.items():
        p.copy_(torch.from_numpy(np.require(arrays[name], requirements="W")))


def check_fit(shapes: Mapping[str, tuple[int, ...]], arrays: Mapping[str, np.ndarray]) -> None:
    """Accept only arrays of these names and shapes.

    Raises:
        ProtocolError: the first difference, by name.
    """
    if shapes.keys() != arrays.keys():
        strange = sorted(shapes.keys() ^ arrays.keys())
        raise ProtocolError(
            f"weights do not fit the model: {len(strange)} names differ, first {strange[0]!r}; "
            "are model.path and model.lora the same everywhere?"
        )
    for name, shape in shapes.items():
        if shape != arrays[name].shape:
            raise ProtocolError(f"weights do not fit the model: {name} is {arrays[name].shape}, expected {shape}")


@torch.no_grad()
def whole(model: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Every parameter under the name it has without adapters, which are merged into copies, one at a time.

    This is what an inference engine, which knows no adapters, is loaded with.
    """
    if not hasattr(model, "peft_config"):
        yield from ((name, p.detach()) for name, p in model.named_parameters())
        return
    adapted: Any = model
    bare = adapted.get_base_model()
    for name, p in bare.named_parameters():
        if ".lora_" in name:
            continue
        owner, _, leaf = name.partition(".base_layer.")
        if leaf == "weight":
            delta = bare.get_submodule(owner).get_delta_weight(ADAPTER)
            yield f"{owner}.weight", (p.float() + delta).to(p.dtype)
        else:
            yield name.replace(".base_layer.", "."), p.detach()
