"""ALFWorld on its own engine (TextWorld with Fast Downward), in worker processes."""

from envs.alfworld.adapter import AlfWorld

__all__ = ["AlfWorld"]
