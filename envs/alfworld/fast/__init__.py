"""TextWorld's planning games, played fast; imported in worker processes alone, because it imports TextWorld."""

from envs.alfworld.fast.engine import FastEngine, parse_grammar, translate

__all__ = ["FastEngine", "parse_grammar", "translate"]
