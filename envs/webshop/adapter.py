"""WebShop behind the environment seam: `WebShop` (adapter) and `WebShopEnv` (episode)."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any

from envs.base import Step, Task, Variant, View
from envs.places import folder
from envs.prompts import known
from envs.webshop import compact, oracle, paper
from envs.webshop.files import GOALS
from envs.webshop.scoring import MODES
from envs.webshop.session import Page, Session
from envs.webshop.shop import Shop, embedded_shop, shop_of
from envs.webshop.variants import world_of
from flwr_agent.errors import ConfigError, EnvError
from flwr_agent.seeds import seed_for

STYLES: dict[str, Any] = {"paper": paper, "compact": compact}


class WebShop:
    """A shop for one client: shared catalogue, its own world, reward mode and prompt style.

    Example:
        >>> shop = WebShop(style="compact")
        >>> shop.oracle(shop.tasks("val")[0])
        ['search …', 'click 1', 'click red', 'click small', 'click buy now']
    """

    name = "webshop"
    version = "1"

    def __init__(  # noqa: PLR0913 (the environment's settings)
        self,
        *,
        data_path: str = "none",
        goals: str = "synthetic",
        search_return_n: int = 50,
        val_search_return_n: int = 50,
        reward: str = "strict",
        style: str = "compact",
        variant: Variant | None = None,
    ):
        if reward not in MODES:
            raise ConfigError("env.reward", reward, "no such reward", allowed=MODES)
        self.world = world_of(_open(data_path, goals), variant, goals=goals)
        self.shop = self.world.shop
        self.style = STYLES[known(style)]
        self.reward = reward
        self.variant = variant
        self._settings = {
            "search_return_n": search_return_n,
            "val_search_return_n": val_search_return_n,
            "reward": reward,
        }

    def tasks(self, split: str) -> Sequence[Task]:
        """The tasks of a split whose products are on sale, in canonical order; an unknown split has none."""
        tasks, on_sale = self.shop.tasks.get(split, ()), self.world.on_sale
        return tasks if on_sale is None else tuple(task for task in tasks if task.meta["asin"] in on_sale)

    def system_prompt(self) -> str:
        """System message of concat mode."""
        return self.style.SYSTEM

    def render(self, view: View) -> str:
        """The user message of one windowed turn."""
        return self.style.render(view)

    def parse_action(self, model_text: str) -> tuple[str, bool]:
        """`(action, is_valid)` of an answer, by the rules of the prompt style."""
        return self.style.parse(model_text)

    def make(self) -> WebShopEnv:
        """A fresh episode holder."""
        return WebShopEnv(self)

    def session(self, task: Task) -> Session:
        """A shopper at the start of `task`.

        Raises:
            EnvError: no such goal in this shop.
        """
        if task.id not in self.shop.goals:
            raise EnvError(f"webshop has no task {task.id}; it was made from other data")
        depth = self._settings["val_search_return_n" if task.split == "val" else "search_return_n"]
        draw = random.Random(seed_for("webshop search", self.world.seed, task.id))
        return Session(
            self.shop, self.shop.goals[task.id], lambda query: self.world.search(query, depth, draw), self.reward
        )

    def oracle(self, task: Task) -> Sequence[str] | None:
        """The actions of `oracle.solve`, as this style's policy names them."""
        return oracle.solve(partial(self.session, task), self.style.express, is_chancy=self.world.seed is not None)

    def fingerprint(self) -> str:
        """Digest of data, engine version, search depth, reward mode and variant."""
        parts = [self.name, self.version, self.shop.digest, self._settings]
        if self.variant:
            parts.append(asdict(self.variant))
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _open(data_path: str, goals: str) -> Shop:
    if goals not in GOALS:
        raise ConfigError("env.goals", goals, "no such goals", allowed=GOALS)
    if data_path != "none":
        return shop_of(folder(data_path, "name one with WebShop's items_*.json, or none"), goals)
    if goals == "human":
        raise ConfigError("env.goals", goals, "the embedded catalogue has no human goals; set env.data_path")
    return embedded_shop()


class WebShopEnv:
    """One WebShop episode at a time."""

    def __init__(self, adapter: WebShop):
        self._adapter = adapter
        self._session: Session | None = None
        self._task_id = ""

    async def reset(self, task: Task, *, seed: int) -> Step:  # noqa: ARG002 (a world of chance draws by task, so that the oracle can know)
        """Start at the search page of `task`."""
        self._session, self._task_id = self._adapter.session(task), task.id
        return self._observe(self._session, {"instruction": self._session.goal.instruction})

    async def step(self, action: str) -> Step:
        """Apply one action; the reward comes with the purchase that ends the episode."""
        if self._session is None:
            raise EnvError("webshop: step before reset; call reset(task) first")
        was_over = self._session.page is Page.DONE
        self._session.act(self._adapter.style.resolve(action, self._session))
        step = self._observe(self._session, {})
        return replace(step, reward=0.0) if was_over else step

    async def close(self) -> None:
        """Forget the episode."""
        self._session = None

    def _observe(self, session: Session, info: dict[str, Any]) -> Step:
        style, reward = self._adapter.style, session.reward
        return Step(
            text=style.page_text(session),
            reward=reward,
            terminated=session.page is Page.DONE,
            admissible=style.admissible(session),
            info={
                "success": reward == 1.0,
                "task_score": reward,
                "task_id": self._task_id,
                "measures": session.measures(),
                **info,
            },
        )
