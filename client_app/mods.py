"""Flower's own client mods, applied as the run and the site ask for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from flwr.app import Context, Message
from flwr.clientapp.mod import LocalDpMod, adaptiveclipping_mod, fixedclipping_mod
from flwr.clientapp.typing import ClientAppCallable, Mod

from flwr_agent import protocol, site, wire
from flwr_agent.config import PrivacyConfig, RunConfig, resolve

CLIPPING_NORM = "clipping_norm"
"""Key of a request under which Flower's clipping mods look for the norm."""
MODS: Mapping[str, Callable[[PrivacyConfig], Mod]] = {
    wire.FIXED_CLIPPING: lambda _: fixedclipping_mod,
    wire.ADAPTIVE_CLIPPING: lambda _: adaptiveclipping_mod,
    # Two replies of a client differ by at most twice the norm they are clipped to.
    wire.LOCAL_DP: lambda own: LocalDpMod(own.clip, 2 * own.clip, own.local_epsilon, own.delta),
}


def apply(message: Message, context: Context, train: ClientAppCallable) -> Message:
    """Train within the mods of `privacy.mods`, the first one outermost; a site's setting takes the place of the run's.

    Raises:
        ConfigError: a setting of the site's that would not be obeyed, no such mod, or a run whose messages Flower's mods
            would misread.
    """
    config = _with_site(protocol.run_config(message.content), context.node_config)
    message.content.config_records[protocol.CONFIG][CLIPPING_NORM] = config.privacy.clip
    for name in reversed(wire.check_mods(config.privacy.mods, config)):
        train = partial(_around, MODS[name](config.privacy), train)
    return train(message, context)


def _around(mod: Mod, inner: ClientAppCallable, message: Message, context: Context) -> Message:
    return mod(message, context, inner)


def _with_site(config: RunConfig, node_config: Mapping[str, object]) -> RunConfig:
    own = site.privacy(node_config)
    return resolve(config.flat(), own) if own else config
