"""Whatever a model writes: no exception, reward in range, and what does not apply changes nothing."""

import asyncio
import random
import re

import pytest

from envs.webshop import WebShop
from tests.envs.wild import wild

NUM_ACTIONS = 10_000


def may_apply(style: str, action: str, listed: tuple[str, ...]) -> bool:
    """Whether an action has the form `verb[words]` (compact: or `verb words`) and, for a click, names something on the page."""
    found = re.match(r"(.+)\[(.+)\]", action[:2_000])
    if style == "compact" and not found:
        found = re.match(r"(\w+) (.+)", action, re.DOTALL)
    if len(action) > 2_000:
        return action.startswith(("search", "click"))
    label = found[2].lower().replace(" ", "") if found else ""
    labels = {entry.lower().removeprefix("click").strip("[] ").replace(" ", "") for entry in listed} | {
        "next>",
        "<prev",
    }
    asin = label.startswith("b0") and len(label) == 10
    return bool(found) and (found[1] == "search" or (found[1] == "click" and (label in labels or asin)))


@pytest.mark.parametrize("style", ["paper", "compact"])
def test_ten_thousand_wild_actions(style):
    shop, draw = WebShop(style=style), random.Random(0)
    tasks = shop.tasks("train")

    async def run() -> None:
        env, step = shop.make(), None
        for i in range(NUM_ACTIONS):
            if step is None or step.done:
                step = await env.reset(tasks[i % len(tasks)], seed=i)
            raw = wild(draw, step.admissible)
            action, is_valid = shop.parse_action(raw)
            assert isinstance(action, str)
            assert isinstance(is_valid, bool)
            if draw.random() < 0.5:
                action = raw
            before, step = step, await env.step(action)
            assert 0.0 <= step.reward <= 1.0
            assert step.done or not step.reward
            if not may_apply(style, action, before.admissible):
                assert (step.text, step.admissible) == (before.text, before.admissible), action[:80]

    asyncio.run(run())


@pytest.mark.parametrize(
    "action", ["click[[small]]", "click[small", "xclick[small]", "Click[small]x[", "click[small]\x00["]
)
def test_near_misses_change_nothing(action):
    shop = WebShop(style="paper")
    session = shop.session(shop.tasks("val")[0])
    session.act("search[jacket]")
    session.act(f"click[{session.shown()[0].asin}]")
    before = session.text(), dict(session.chosen), session.page
    session.act(action)
    assert before == (session.text(), session.chosen, session.page)
