"""The adapter of ALFWorld: real games from a data folder, or MiniHouse's households on the real engine."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from envs.alfworld import games, pool
from envs.alfworld.walkthrough import adapted, opened
from envs.base import Task, Variant, View
from envs.minihouse import MiniHouse, prompt
from envs.minihouse.episode import MAX_STEPS, Episode
from envs.minihouse.rules import rules_of
from envs.prompts import known
from flwr_agent.errors import ConfigError

VAL_SPLIT = "valid_seen"
"""Split of a data folder that `val` stands for."""


class AlfWorld:
    """ALFWorld's games on TextWorld, in `workers` processes that all adapters of this process share.

    With a data folder the splits are `train`, `valid_seen` (also called `val`) and `valid_unseen`; without one the
    games are MiniHouse's.

    Example:
        >>> env = AlfWorld(data_path="~/alfworld", style="paper")  # doctest: +SKIP
        >>> env.tasks("val")[0].meta["category"]  # doctest: +SKIP
        'pick_heat_then_place_in_recep'
    """

    name = "alfworld"
    version = "1"

    def __init__(
        self, *, data_path: str = "none", workers: int = 2, style: str = "paper", variant: Variant | None = None
    ):
        if importlib.util.find_spec("textworld") is None:
            fix = "needs TextWorld: pip install 'flwr-agent[alfworld]', or use minihouse"
            raise ConfigError("env.name", self.name, fix)
        self._folder = None if data_path == "none" else games.root(data_path)
        self._style = known(style)
        self._variant = variant
        self._rules = rules_of(variant)
        self._pool = pool.shared(workers)

    def tasks(self, split: str) -> Sequence[Task]:
        """The games of a split; `meta` holds `category`, `scene`, `objects` and, of a data folder's games, `game`."""
        if self._folder is None:
            return MiniHouse().tasks(split)
        found = VAL_SPLIT if split == "val" else split
        if found not in games.SPLITS:
            raise ConfigError("split", split, "ALFWorld's data has no such split", allowed=("val", *games.SPLITS))
        return _tasks(self._folder, found)

    def system_prompt(self) -> str:
        """Role and answer format."""
        return prompt.system_prompt()

    def render(self, view: View) -> str:
        """The user message of one turn."""
        return prompt.render(view, self._style)

    def parse_action(self, model_text: str) -> tuple[str, bool]:
        """The command of an answer, and whether its format held."""
        return prompt.parse_action(model_text, self._style)

    def make(self) -> Episode:
        """An episode in one of the workers."""
        return Episode(self._pool.engine(folder=self._folder, rules=self._rules))

    def oracle(self, task: Task) -> Sequence[str] | None:
        """The commands that solve a generated game, or the walkthrough of a real one in this household's rules."""
        if self._folder is None:
            return MiniHouse(variant=self._variant).oracle(task)
        game = games.read(self._folder / task.meta["game"])
        if game.get("walkthrough") is None:
            return None
        is_light = task.meta["category"] == "look_at_obj_in_light"
        return adapted(game["walkthrough"], self._rules, is_light=is_light, opened=opened(game["pddl_problem"]))

    def fingerprint(self) -> str:
        """Digest of the engine's version and of the games."""
        parts = [self.name, self.version, str(MAX_STEPS), repr(self._rules), version("textworld")]
        if self._folder is None:
            parts.append(MiniHouse().fingerprint())
        else:
            splits = [split for split in games.SPLITS if (self._folder / split).is_dir()]
            parts += [games.digest(games.listed(self._folder, split)) for split in splits]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()


@functools.cache
def _tasks(folder: Path, split: str) -> tuple[Task, ...]:
    return games.tasks(folder, split)
