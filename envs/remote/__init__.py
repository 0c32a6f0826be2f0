"""An environment served by another interpreter or host: `python -m flwr_agent serve` there, `env.name=remote` here."""

from envs.remote.adapter import Remote

__all__ = ["Remote"]
