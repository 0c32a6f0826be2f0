"""WebShop behind the environment seam: `WebShop` (adapter) and `WebShopEnv` (episode)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from envs.base import Step, Task, Variant, View
from envs.webshop import compact, paper
from envs.webshop.files import GOALS
from envs.webshop.goals import Goal
from envs.webshop.session import BUY, NEXT, Page, Session
from envs.webshop.shop import Shop, embedded_shop, shop_of
from flwr_agent.errors import ConfigError, EnvError

STYLES: dict[str, Any] = {"paper": paper, "compact": compact}
REWARDS = ("strict", "upstream")
ORACLE_PAGES = 5
"""Result pages the oracle looks through before it gives a search up."""


class WebShop:
    """A shop for one client: shared catalogue, its own search, reward mode and prompt style.

    Example:
        >>> shop = WebShop(style="compact")
        >>> shop.oracle(shop.tasks("val")[0])
        ['search …', 'click 1', 'click red', 'click small', 'click buy now']
    """

    name = "webshop"
    version = "1"

    def __init__(
        self,
        *,
        data_path: str = "none",
        goals: str = "synthetic",
        search_return_n: int = 50,
        reward: str = "strict",
        style: str = "compact",
        variant: Variant | None = None,
    ):
        if reward not in REWARDS:
            raise ConfigError("env.reward", reward, "no such reward", allowed=REWARDS)
        if style not in STYLES:
            raise ConfigError("prompt.style", style, "no such prompt style", allowed=STYLES)
        if variant is not None:
            raise ConfigError("partition.strategy", variant.name, "webshop knows no such variant")
        self.shop = _open(data_path, goals)
        self.style = STYLES[style]
        self.reward = reward
        self.rank = partial(self.shop.index.search, k=search_return_n)
        self._settings = {"search_return_n": search_return_n, "reward": reward}
        self._tasks = {split: [_task(goal, split) for goal in goals] for split, goals in self.shop.splits.items()}

    def tasks(self, split: str) -> Sequence[Task]:
        """All tasks of a split in canonical order; an unknown split has none."""
        return self._tasks.get(split, ())

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
        return Session(self.shop, self.shop.goals[task.id], self.rank, self.reward)

    def oracle(self, task: Task) -> Sequence[str] | None:
        """Search the instruction's words (else the title), open the first product that can score 1.0, choose, buy.

        None when no product found by either search can score 1.0.
        """
        goal = self.shop.goals[task.id]
        wanted = [*goal.attributes, goal.product.query, *(value for _, value in goal.options)]
        plans = (self._plan(task, words) for words in (" ".join(wanted), goal.product.title))
        return next((plan for plan in plans if plan), None)

    def _plan(self, task: Task, words: str) -> list[str] | None:
        session, express = self.session(task), self.style.express
        actions = [express(f"search[{words.lower()}]", session)]
        session.act(f"search[{words}]")
        choices = [f"click[{value}]" for _, value in session.goal.options]
        while session.shown() and session.number <= ORACLE_PAGES:
            for product in session.shown():
                steps = [f"click[{product.asin}]", *choices, f"click[{BUY}]"]
                if _reward_after(steps, session) == 1.0:
                    return actions + [express(step.lower(), session) for step in steps]
            actions.append(express(f"click[{NEXT.lower()}]", session))
            session.act(f"click[{NEXT}]")
        return None

    def fingerprint(self) -> str:
        """Digest of data, engine version, search depth and reward mode."""
        parts = [self.name, self.version, self.shop.digest, self._settings]
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _open(data_path: str, goals: str) -> Shop:
    if goals not in GOALS:
        raise ConfigError("env.goals", goals, "no such goals", allowed=GOALS)
    if data_path != "none":
        folder = Path(data_path).expanduser()
        if not folder.is_dir():
            raise ConfigError(
                "env.data_path", data_path, "no such folder; name one with WebShop's items_*.json, or none"
            )
        return shop_of(folder.resolve(), goals)
    if goals == "human":
        raise ConfigError("env.goals", goals, "the embedded catalogue has no human goals; set env.data_path")
    return embedded_shop()


def _reward_after(actions: Sequence[str], session: Session) -> float:
    session = replace(session)
    for action in actions:
        session.act(action)
    return session.reward


def _task(goal: Goal, split: str) -> Task:
    product = goal.product
    meta = {"category": product.category, "query": product.query, "asin": product.asin, "n_options": len(goal.options)}
    return Task(goal.id, split, meta)


class WebShopEnv:
    """One WebShop episode at a time."""

    def __init__(self, adapter: WebShop):
        self._adapter = adapter
        self._session: Session | None = None
        self._task_id = ""

    async def reset(self, task: Task, *, seed: int) -> Step:  # noqa: ARG002 (this shop has no chance in it)
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
            info={"success": reward == 1.0, "task_score": reward, "task_id": self._task_id, **info},
        )
