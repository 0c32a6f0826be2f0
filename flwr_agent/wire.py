"""What may travel together: payload, compression, error feedback and the mods of clients."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flwr_agent.errors import ConfigError

if TYPE_CHECKING:
    from flwr_agent.config import RunConfig

VALUE, DELTA = "value", "delta"
"""Payloads: a client's weights, or their difference from the ones it was sent."""
PLAIN, BF16, INT8 = "none", "bf16", "int8"
"""Compressions."""
FIXED_CLIPPING, ADAPTIVE_CLIPPING, LOCAL_DP = "fixedclipping", "adaptiveclipping", "localdp"
MODS = (FIXED_CLIPPING, ADAPTIVE_CLIPPING, LOCAL_DP)
"""Flower's mods that a ClientApp can apply."""
NO_MODS = "none"


def check(config: RunConfig) -> None:
    """Refuse what would be wrong on the wire.

    Raises:
        ConfigError: names the key and the fix.
    """
    own, fed, key = config.strategy, config.federation, "strategy.error_feedback"
    if own.compression != PLAIN and own.payload != DELTA:
        fix = "rounds away most of a small step when weights themselves are sent; set strategy.payload=delta"
        raise ConfigError("strategy.compression", own.compression, fix)
    if own.error_feedback and own.compression == PLAIN:
        raise ConfigError(key, own.error_feedback, "nothing is lost without compression; set one or unset this")
    if own.error_feedback and fed.clients_per_round != fed.total_clients:
        fix = "needs every client in every round; set federation.clients_per_round=federation.total_clients"
        raise ConfigError(key, own.error_feedback, fix)
    check_mods(config.privacy.mods, config)


def check_mods(names: str, config: RunConfig) -> tuple[str, ...]:
    """The mods of a comma-separated list, if Flower's mods can read what the run sends.

    Raises:
        ConfigError: an unknown mod, or a run whose messages they would misread.
    """
    if not (mods := mods_of(names)):
        return ()
    if config.strategy.payload != VALUE:
        fix = "Flower's mods clip the difference of weights, and a delta is one already; set strategy.payload=value"
        raise ConfigError("privacy.mods", names, fix)
    if config.algorithm.name != "grpo":
        fix = "Flower's mods would clip policy and critic as one; use algorithm.name=grpo"
        raise ConfigError("privacy.mods", names, fix)
    return mods


def mods_of(names: str) -> tuple[str, ...]:
    """The mods of a comma-separated list, none for `none`.

    Raises:
        ConfigError: an unknown mod, or one twice.
    """
    if names == NO_MODS:
        return ()
    mods = tuple(name.strip() for name in names.split(","))
    for name in mods:
        if name not in MODS:
            raise ConfigError("privacy.mods", names, "no such mod", allowed=(*MODS, NO_MODS))
        if mods.count(name) > 1:
            raise ConfigError("privacy.mods", names, f"applies {name} twice; name it once")
    return mods


def used(config: RunConfig) -> frozenset[str]:
    """Names under `privacy.` that a run uses."""
    mods = check_mods(config.privacy.mods, config)
    found = {"noise_multiplier", "mods"}
    if config.privacy.noise_multiplier:
        found |= {"clip", "delta", "budget"}
    if mods:
        found |= {"clip"}
    if LOCAL_DP in mods:
        found |= {"delta", "local_epsilon"}
    return frozenset(found)
