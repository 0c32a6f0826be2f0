"""The adapter, its pages and its prompts, on the embedded catalogue."""

import asyncio
import functools
import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from envs.base import EnvAdapter, Step, Task, Variant, View
from envs.check import check
from envs.webshop import WebShop
from envs.webshop.session import Page
from flwr_agent.errors import ConfigError, EnvError

SPLITS = ("train", "val", "demo")


@pytest.fixture(scope="module", params=["paper", "compact"])
def shop(request) -> WebShop:
    return WebShop(style=request.param)


@pytest.fixture(scope="module")
def paper() -> WebShop:
    return WebShop(style="paper")


@pytest.fixture(scope="module")
def compact() -> WebShop:
    return WebShop(style="compact")


def play(shop: WebShop, task: Task, actions: Sequence[str]) -> list[Step]:
    async def episode() -> list[Step]:
        env = shop.make()
        steps = [await env.reset(task, seed=0)]
        steps += [await env.step(action) for action in actions]
        await env.close()
        return steps

    return asyncio.run(episode())


def some_task(shop: WebShop, query: str = "jacket") -> Task:
    return next(task for task in shop.tasks("val") if task.meta["query"] == query)


def test_it_keeps_the_environment_contract(shop):
    assert isinstance(shop, EnvAdapter)
    assert check(shop, episodes=3, max_steps=15, splits=SPLITS) == []


@pytest.mark.parametrize("reward", ["strict", "upstream"])
def test_the_oracle_wins_every_goal(reward):
    shop = WebShop(reward=reward)
    search = functools.cache(shop.shop.index.search)  # oracle and play search alike
    shop.world = replace(shop.world, search=lambda query, k, draw: search(query, k))
    tasks = [task for split in SPLITS for task in shop.tasks(split)]
    assert len({task.id for task in tasks}) == 6_900
    for task in tasks[:: 1 if reward == "strict" else 10]:
        session = shop.session(task)
        for action in shop.oracle(task):
            session.act(shop.style.resolve(action, session))
        assert session.reward == 1.0


def test_the_oracle_wins_through_the_environment(shop):
    for task in shop.tasks("val")[:100]:
        actions = shop.oracle(task)
        assert all(shop.parse_action(_answer(shop, action)) == (action, True) for action in actions)
        *before, last = play(shop, task, actions)
        assert not any(step.done or step.reward for step in before)
        assert (last.reward, last.terminated, last.info["success"], last.info["task_score"]) == (1.0, True, True, 1.0)
        assert last.info["task_id"] == task.id


def _answer(shop: WebShop, action: str) -> str:
    return action if shop.style.__name__.endswith("compact") else f"<think>so</think><action>{action}</action>"


def test_seeds_and_instances_change_nothing(shop):
    other = WebShop(style=shop.style.__name__.rpartition(".")[2])
    assert [task.id for task in other.tasks("train")] == [task.id for task in shop.tasks("train")]
    assert other.fingerprint() == shop.fingerprint() != WebShop(reward="upstream").fingerprint()
    task = some_task(shop)
    assert play(shop, task, shop.oracle(task)) == play(other, task, other.oracle(task))


def test_golden_pages(paper):
    task = some_task(paper)
    goal = paper.shop.goals[task.id]
    asin = goal.product.asin.lower()
    clicks = [f"click[{asin}]", "click[description]", "click[< prev]", "click[features]", "click[< prev]"]
    clicks += ["click[reviews]", "click[< prev]", "click[< prev]", "click[next >]", "click[buy now]"]
    texts = [step.text for step in play(paper, task, [f"search[{goal.product.title}]", *clicks])]
    item = (
        "'Back to Search' [SEP] '< Prev' [SEP] 'color' [SEP] 'blue' [SEP] 'green' [SEP] 'red' [SEP] 'white' [SEP] 'size' "
        "[SEP] 'medium' [SEP] 'petite' [SEP] 'small' [SEP] 'Casual Waterproof Formal Jacket' [SEP] 'Price: $35.0' [SEP] "
        "'Rating: N.A.' [SEP] 'Description' [SEP] 'Features' [SEP] 'Reviews' [SEP] 'Buy Now'"
    )
    assert texts[0] == "'Search'"
    assert texts[1].split(" [SEP] ")[:6] == [
        "'Back to Search'", "'Page 1 (Total results: 50)'", "'Next >'",
        "'B0K5JIWO35'", "'Casual Waterproof Formal Jacket'", "'$35.0'",
    ]  # fmt: skip
    assert texts[1].count(" [SEP] ") == 2 + 10 * 3
    assert texts[3] == "'Back to Search' [SEP] '< Prev' [SEP] 'This jacket is casual, waterproof and formal.'"
    assert (
        texts[5]
        == "'Back to Search' [SEP] '< Prev' [SEP] 'Casual and waterproof' [SEP] 'Also formal' [SEP] 'As waterproof as it gets'"
    )
    assert texts[7] == "'Back to Search' [SEP] '< Prev'"
    assert {texts[2], texts[4], texts[6], texts[8]} == {item}
    assert texts[9] == texts[1]
    assert texts[10].startswith(
        "'Back to Search' [SEP] 'Page 2 (Total results: 50)' [SEP] '< Prev' [SEP] 'Next >' [SEP] 'B0"
    )
    assert texts[11] == texts[10]
    bought = play(paper, task, [f"search[{goal.product.title}]", clicks[0], "click[buy now]"])[-1].text
    assert bought == "Thank you for shopping with us! [SEP] Your score (min 0.0, max 1.0) [SEP] 0.6"


def test_raw_pages_carry_the_instruction_third(paper):
    task = some_task(paper)
    session = paper.session(task)
    assert session.text() == ["WebShop", "Instruction:", session.goal.instruction, "Search"]
    session.act("search[nothing like this]")
    assert session.text()[:3] == ["Instruction:", session.goal.instruction, "Back to Search"]


def test_pages_past_the_last_are_empty_and_next_stays(paper):
    steps = play(paper, some_task(paper), ["search[jacket]", *["click[next >]"] * 6, "click[< prev]"])
    assert steps[1].text.startswith("'Back to Search' [SEP] 'Page 1 (Total results: 40)' [SEP] 'Next >' [SEP] 'B0")
    assert steps[7].text == "'Back to Search' [SEP] 'Page 7 (Total results: 40)' [SEP] '< Prev' [SEP] 'Next >'"
    assert "'Page 6 (" in steps[8].text


def test_options_survive_sub_pages_and_are_forgotten_with_the_item(paper):
    task = some_task(paper)
    session, goal = paper.session(task), paper.shop.goals[task.id]
    (_, color), (_, size) = goal.options
    for action in (
        f"search[{goal.product.title}]",
        f"click[{goal.product.asin}]",
        f"click[{color}]",
        "click[features]",
    ):
        session.act(action)
    session.act("click[< prev]")
    session.act(f"click[{size}]")
    assert session.chosen == {"color": color, "size": size}
    session.act("click[< prev]")
    session.act(f"click[{goal.product.asin}]")
    assert session.chosen == {}


def test_inapplicable_actions_change_nothing(shop):
    task = some_task(shop)
    for action in (
        "",
        "buy",
        "click[]",
        "search[]",
        "click[search]",
        "click[no such thing]",
        "search",
        "[x]",
        "click 99",
    ):
        before, after = play(shop, task, [action])
        assert (after.text, after.admissible, after.reward, after.done) == (before.text, before.admissible, 0.0, False)


def test_search_works_from_any_page_and_nothing_works_after_the_end(paper):
    task = some_task(paper)
    won = [*paper.oracle(task), "search[jacket]", "click[back to search]"]
    steps = play(paper, task, [*paper.oracle(task)[:2], "search[red chair]", "click[back to search]"])
    assert "'Page 1 (" in steps[3].text
    assert steps[4].text == "'Search'"
    steps = play(paper, task, won)
    assert steps[-1].text == steps[-3].text
    assert steps[-1].done
    assert steps[-1].admissible == ()


def test_compact_names_are_the_engines_names(paper, compact):
    task = some_task(compact)
    plain = [step.text for step in play(compact, task, ["search soft jacket", "click next", "click 3"])]
    third = play(paper, task, ["search[soft jacket]", "click[next >]"])[-1].admissible[5]
    ours, theirs = compact.session(task), paper.session(task)
    for a, b in (("search soft jacket", "search[soft jacket]"), ("click next", "click[next >]"), ("click 3", third)):
        ours.act(compact.style.resolve(a, ours))
        theirs.act(b)
    assert ours.text() == theirs.text()
    assert plain[0] == "search"
    assert plain[2].startswith("results page 2 1 ")
    assert plain[3].startswith("item ")
    assert play(compact, task, ["search soft jacket", "click 1 0"])[-1].text.startswith("item ")


def test_every_listed_action_does_something(compact):
    draw = random.Random(0)
    for task in compact.tasks("train")[:50]:
        session = compact.session(task)
        while compact.style.admissible(session):
            before = (session.text(), dict(session.chosen), session.page)
            action = draw.choice([a for a in compact.style.admissible(session) if "next" not in a])
            session.act(compact.style.resolve(action, session))
            chosen_again = action.removeprefix("click ") in before[1].values()
            assert chosen_again or before != (session.text(), session.chosen, session.page), action


def test_a_purchase_is_measured_by_both_matchings_and_by_whether_anything_was_chosen(shop):
    task = next(t for t in shop.tasks("train") if shop.session(t).goal.options and shop.oracle(t))

    def measures(*, skip_options: bool) -> dict[str, float]:
        session = shop.session(task)
        for action in shop.oracle(task):
            label = shop.style.resolve(action, session)
            is_option = session.page is Page.ITEM and not label.lower().endswith("[buy now]")
            if not (skip_options and is_option):
                session.act(label)
        return session.measures()

    assert measures(skip_options=False) == {"strict_score": 1.0, "upstream_score": 1.0, "bought_at_once": 0.0}
    hasty = measures(skip_options=True)
    assert hasty["bought_at_once"] == 1.0
    assert hasty["strict_score"] < 1.0
    assert set(shop.session(task).measures().values()) == {0.0}


def test_the_paper_prompt_has_its_parts_in_order(paper):
    view = View("find a hat", "'Search'", ("search[<your query>]",))
    first = paper.render(view)
    parts = ("WebShop", "find a hat.", "'Search'.", "[\n'search[<your query>]',\n].", "<think> </think>", "<action> ")
    assert [first.index(part) for part in parts] == sorted(first.index(part) for part in parts)
    assert first.startswith("\n")
    assert first.endswith("\n")
    assert "Observation" not in first
    later = paper.render(View("find a hat", "now", (), (("seen", "search[hat]"),), num_steps=4))
    assert "[Observation 4: 'seen', Action 4: 'search[hat]']" in later
    assert "step 5" in later


def test_a_paper_prompt_above_13000_characters_loses_its_history(paper):
    history = (("x" * 6_400, "click[a]"), ("x" * 6_400, "click[b]"))
    assert "click[a]" in paper.render(View("t", "o", (), history[:1], num_steps=2))
    assert paper.render(View("t", "o", (), history, num_steps=2)) == paper.render(View("t", "o", ()))


def test_the_compact_prompt_is_short_and_ends_with_its_marker(compact):
    task = some_task(compact)
    actions, history = compact.oracle(task), []
    for step, action in zip(play(compact, task, actions), actions, strict=False):
        prompt = compact.render(View("find me a hat", step.text, step.admissible, tuple(history[-2:]), len(history)))
        assert len(prompt.split()) <= 100
        assert prompt.endswith(" >")
        history.append((step.text, action))


def test_answers_are_parsed_by_the_rules_of_the_style(paper, compact):
    good = "<think>x</think><action> Search[Red Hat] </action>"
    assert paper.parse_action(good) == ("search[red hat]", True)
    assert paper.parse_action("<action>click[a]</action>") == ("click[a]", False)
    assert paper.parse_action(good + "好") == ("search[red hat]", False)
    assert paper.parse_action("I would like to click[buy now]") == ("like to click[buy now]"[-20:], False)
    assert compact.parse_action(" Search  red hat \nand so on") == ("search red hat", True)
    assert compact.parse_action("click") == ("click", False)
    assert compact.parse_action("buy now") == ("buy now", False)
    assert compact.parse_action("") == ("", False)


def test_bad_settings_and_unknown_tasks_are_refused():
    for settings in ({"reward": "x"}, {"style": "x"}, {"variant": Variant("nonsense")}):
        with pytest.raises(ConfigError):
            WebShop(**settings)
    shop = WebShop()
    assert shop.tasks("no such split") == ()
    with pytest.raises(EnvError, match="other data"):
        play(shop, Task("B0_1", "val"), [])
    with pytest.raises(EnvError, match="reset"):
        asyncio.run(shop.make().step("click 1"))
