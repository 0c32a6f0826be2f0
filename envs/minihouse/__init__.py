"""MiniHouse: generated households with ALFWorld's six task types, rules and texts, in plain Python."""

from envs.minihouse.adapter import MiniHouse

__all__ = ["MiniHouse"]
