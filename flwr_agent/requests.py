"""What the server asks of a client and what comes back, as plain objects that know neither Flower nor torch.

`flwr_agent.protocol` turns them into Flower records; `flwr_agent.rl.worker` serves them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from flwr_agent.config import RunConfig

Arrays = dict[str, np.ndarray]
"""Tensor name with its group prefix (`actor/model.embed_tokens.weight`) -> fp32 values."""

PROTOCOL_VERSION = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class InitialModel:
    """What a federation starts from."""

    arrays: Arrays
    """The model of round 0, as far as it is trained."""
    base_digest: str
    """Digest of the original policy's weights, those that adapters leave frozen included."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainRequest:
    """Train one client for one round, starting from `arrays`."""

    experiment: str
    """Identity of the run across resumes (digest of folder and fingerprint)."""
    round: int
    """1-based."""
    client_id: int
    """0-based; travels in the request, so that any simulated node can serve any client."""
    config: RunConfig
    arrays: Arrays
    base_digest: str
    """Of the `InitialModel`: the base of KL term and adapters that a client loads for itself must be this one."""
    folded: int = 0
    """Last round whose reply of this client is in the model; 0 if there is none."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainReply:
    """A client's weights after its round, with what it measured."""

    round: int
    client_id: int
    arrays: Arrays
    num_examples: int
    """Training rows that carried a model token."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """The same names from every client; seconds by stage as `time/…`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EvaluateRequest:
    """Play the held-out tasks with `arrays`."""

    experiment: str
    round: int
    config: RunConfig
    arrays: Arrays


@dataclass(frozen=True, kw_only=True, slots=True)
class EvaluateReply:
    """Held-out scores of one model."""

    round: int
    metrics: Mapping[str, float] = field(default_factory=dict)
    """`success`, `task_score`, … sampled; the same under `greedy/`."""
    outcomes: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """Per task and mode (`sampled/success`, `greedy/success`, `sampled/task_score`, …), in task order."""
    tasks: tuple[str, ...] = ()
    """Id of each task, in that order."""
    types: tuple[str, ...] = ()
    """Category of each task; empty where the environment names none."""
    episodes: tuple[Mapping[str, Any], ...] = ()
    """Best and worst episodes in words (`report.episodes`); they cross no wire."""
    clients: Mapping[int, Mapping[str, float]] = field(default_factory=dict)
    """Scores of each client, where every client played its own tasks."""
    absent: Mapping[int, str] = field(default_factory=dict)
    """Why a client is not among them."""
