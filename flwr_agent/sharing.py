"""The sections of the configuration on what clients share: how updates travel, become a model and are protected."""

from __future__ import annotations

from dataclasses import dataclass

from flwr_agent.sections import knob


@dataclass(frozen=True, kw_only=True, slots=True)
class StrategyConfig:
    """How updates become a model."""

    name: str = knob(
        "fedavg",
        "aggregation strategy: fedavg, fedprox, fedavg_late, fedavgm, fedadagrad, fedadam, fedyogi, fedmedian, fedtrimmedavg, krum, "
        "lora_average, lora_frozen_a, an entry point or module:Class",
        objective=True,
    )
    prox_mu: float = knob(0.0, "fedprox, lora_*: proximal coefficient mu", low=0, objective=True)
    server_lr: float = knob(
        0.0, "server optimizers: step size; 0 takes 1 for fedavgm and tau for the others", low=0, objective=True
    )
    momentum: float = knob(
        0.9, "server optimizers: share of the last step direction that is kept", low=0, high=1, objective=True
    )
    beta2: float = knob(
        0.99, "fedadam, fedyogi: share of the second moment that is kept", low=0, high=1, objective=True
    )
    tau: float = knob(
        1e-3, "fedadagrad, fedadam, fedyogi: size of an update from which steps are bounded", low=1e-12, objective=True
    )
    max_staleness: int = knob(2, "fedavg_late: rounds after which a late reply is dropped", low=1, objective=True)
    staleness_power: float = knob(
        0.5, "fedavg_late: a reply tau rounds late counts (1 + tau)^-power of its movement", low=0, objective=True
    )
    trim: float = knob(
        0.2, "fedtrimmedavg: share of the replies dropped at each end", low=1e-3, high=0.49, objective=True
    )
    byzantine: int = knob(0, "krum: wrong clients that a round must stand", low=0, objective=True)
    keep: int = knob(1, "krum: replies that are averaged (Multi-Krum from 2 on)", low=1, objective=True)
    payload: str = knob(
        "value", "what clients send: their weights, or how they have moved", allowed=("value", "delta"), objective=True
    )
    compression: str = knob(
        "none", "how a delta is shortened on its way", allowed=("none", "bf16", "int8"), objective=True
    )
    error_feedback: bool = knob(False, "what compression has cost a client is added to its next delta", objective=True)


@dataclass(frozen=True, kw_only=True, slots=True)
class PrivacyConfig:
    """Noise on what is averaged, and what clients do to their updates before they send them."""

    noise_multiplier: float = knob(
        0.0,
        "standard deviation of the noise on the sum of updates, in units of clip; 0 is none",
        low=0,
        high=1e12,
        objective=True,
    )
    clip: float = knob(1.0, "largest norm of one client's update", low=1e-12, high=1e12, objective=True)
    delta: float = knob(1e-5, "delta at which epsilon is stated", low=1e-300, high=0.5, objective=True)
    budget: float = knob(0.0, "epsilon beyond which no round is begun; 0 is no limit", low=0)
    mods: str = knob(
        "none",
        "Flower mods that clients apply, in order and with commas: fixedclipping, adaptiveclipping, localdp",
        objective=True,
    )
    local_epsilon: float = knob(1.0, "localdp: epsilon of one reply, at delta", low=1e-12, objective=True)
