"""The environment contract, executable: `check(adapter)` returns every clause that the adapter breaks.

Run it on an environment of your own before any model meets it; each broken clause is one line.
"""

from __future__ import annotations

import asyncio
import json
import math
import random
from collections.abc import Iterable, Sequence
from dataclasses import replace

from envs.base import EnvAdapter, Step, Task, View
from envs.named import cause
from flwr_agent.errors import DataError
from flwr_agent.seeds import seed_for

JUNK = ("", " ", "\x00", "<action>", "</action><action>", "go to", "search[", "click[]", "9" * 400, "\ud800 é 看 🏠")
"""Answers that fit no environment; parsing and stepping must survive them."""

Problem = tuple[str, str]
"""Where a clause is broken, and the clause."""


def check(
    adapter: EnvAdapter,
    *,
    episodes: int = 8,
    seed: int = 0,
    max_steps: int = 50,
    splits: Sequence[str] = ("train", "val"),
) -> list[str]:
    """The clauses that `adapter` breaks, a line each with where it did first and how often; none if it keeps them all.

    Args:
        adapter: the environment.
        episodes: tasks of each split that are played, or all where a split has fewer.
        seed: draws the tasks and the actions.
        max_steps: actions that an episode may take.
        splits: the splits to play.

    Raises:
        AgentError: the adapter refuses to list its tasks.

    Example:
        >>> from envs.registry import create
        >>> check(create("tinyguess", {}), episodes=2)
        []
    """
    tasks = {split: list(adapter.tasks(split)) for split in splits}
    problems = [*_task_lists(adapter, tasks), *_parsing(adapter), *_fingerprint(adapter)]
    for split, listed in tasks.items():
        count = min(episodes, len(listed))
        for task in random.Random(seed_for(seed, "check", split)).sample(listed, count):
            found = asyncio.run(_episodes(adapter, task, seed, max_steps))
            problems += [(f"task {task.id}", problem) for problem in found]
    places: dict[str, list[str]] = {}
    for place, problem in dict.fromkeys(problems):
        places.setdefault(problem, []).append(place)
    return [f"{_first(found)}: {problem}" for problem, found in places.items()]


def _first(places: Sequence[str]) -> str:
    return places[0] if len(places) == 1 else f"{places[0]} and {len(places) - 1} more"


def _task_lists(adapter: EnvAdapter, tasks: dict[str, list[Task]]) -> Iterable[Problem]:
    seen: dict[str, str] = {}
    for split, listed in tasks.items():
        if not listed:
            yield f"tasks({split!r})", "is empty"
        if listed != list(adapter.tasks(split)):
            yield f"tasks({split!r})", "two calls give two lists"
        for task in listed:
            if task.id in seen:
                yield f"task {task.id}", f"id stands in {seen[task.id]!r} and again in {split!r}"
            seen[task.id] = split
            if "category" not in task.meta:
                yield f"task {task.id}", "meta has no 'category'"
            if not _is_json(dict(task.meta)):
                yield f"task {task.id}", "meta does not survive JSON"


def _is_json(value: object) -> bool:
    try:
        return json.loads(json.dumps(value)) == value
    except (TypeError, ValueError):
        return False


def _parsing(adapter: EnvAdapter) -> Iterable[Problem]:
    for text in JUNK:
        place = f"parse_action({text[:12]!r})"
        try:
            action, is_valid = adapter.parse_action(text)
        except Exception as error:  # noqa: BLE001  the adapter under test is a third party's
            yield place, f"fails: {cause(error)}"
            continue
        if not (isinstance(action, str) and isinstance(is_valid, bool)):
            yield place, "must give (str, bool)"


def _fingerprint(adapter: EnvAdapter) -> Iterable[Problem]:
    if adapter.fingerprint() != adapter.fingerprint():
        yield "fingerprint()", "two calls differ"


async def _episodes(adapter: EnvAdapter, task: Task, seed: int, max_steps: int) -> list[str]:
    problems: list[str] = []
    try:
        for part in (_oracle, _prompts, _determinism, _inapplicable, _ending):
            problems += await part(adapter, task, seed, max_steps)
    except DataError:
        raise  # the file's fault, not the adapter's
    except Exception as error:  # noqa: BLE001  the adapter under test is a third party's
        problems.append(f"fails: {cause(error)}")
    return problems


async def play(adapter: EnvAdapter, task: Task, actions: Iterable[str], *, seed: int) -> list[Step]:
    """The steps of one episode from its reset on; stops at its end; closes it twice, as the contract allows."""
    env = adapter.make()
    steps = [await env.reset(task, seed=seed)]
    for action in actions:
        if steps[-1].done:
            break
        steps.append(await env.step(action))
    await env.close()
    await env.close()
    return steps


async def _oracle(adapter: EnvAdapter, task: Task, seed: int, max_steps: int) -> list[str]:
    actions = adapter.oracle(task)
    if actions is None:
        return []
    steps = await play(adapter, task, actions, seed=seed)
    problems = [problem for step in steps for problem in _step_problems(step, task)]
    if not (steps[-1].done and steps[-1].info.get("success")):
        problems.append("the oracle does not succeed")
    if len(steps) - 1 > max_steps:
        problems.append(f"the oracle takes more than {max_steps} actions")
    if any(step.info.get("success") for step in steps[:-1]):
        problems.append("success is reported before the episode ends")
    if not steps[0].info.get("instruction"):
        problems.append("reset's info has no 'instruction'")
    return problems


async def _prompts(adapter: EnvAdapter, task: Task, seed: int, max_steps: int) -> list[str]:  # noqa: ARG001
    """What a policy is told must be text, on the first turn and on a later one."""
    [first] = await play(adapter, task, [], seed=seed)
    now = View(str(first.info.get("instruction")), first.text, first.admissible)
    prompts = {
        "system_prompt()": adapter.system_prompt(),
        "render(view)": adapter.render(now),
        "render(later view)": adapter.render(replace(now, history=((first.text, "look"),), num_steps=1)),
    }
    return [f"{call} must give a str, not {text!r:.40}" for call, text in prompts.items() if not isinstance(text, str)]


async def _determinism(adapter: EnvAdapter, task: Task, seed: int, max_steps: int) -> list[str]:
    actions = await _wander(adapter, task, seed, max_steps)
    first, second = [await play(adapter, task, actions, seed=seed) for _ in range(2)]
    problems = [problem for step in first for problem in _step_problems(step, task)]
    if first != second:
        problems.append("equal task, seed and actions give two transcripts")
    return problems


async def _wander(adapter: EnvAdapter, task: Task, seed: int, max_steps: int) -> list[str]:
    """Random admissible actions where the environment lists them, else the oracle's in random order."""
    draw = random.Random(seed_for(seed, "wander", task.id))
    known = list(adapter.oracle(task) or JUNK)
    env = adapter.make()
    step = await env.reset(task, seed=seed)
    actions: list[str] = []
    while not step.done and len(actions) < max_steps:
        actions.append(draw.choice(step.admissible or known))
        step = await env.step(actions[-1])
    await env.close()
    return actions


async def _inapplicable(adapter: EnvAdapter, task: Task, seed: int, max_steps: int) -> list[str]:
    """Junk before an action must leave that action's answer as it was."""
    after = list(adapter.oracle(task) or ())[: max_steps // 2]
    plain = await play(adapter, task, after, seed=seed)
    problems: dict[str, str] = {}
    for junk in JUNK:
        steps = await play(adapter, task, [junk, *after], seed=seed)
        if steps[1].reward or steps[1].admissible != plain[0].admissible:
            problems.setdefault("is rewarded or changes what is admissible", junk)
        if any(a.text != b.text for a, b in zip(plain[1:], steps[2:], strict=False) if not b.truncated):
            problems.setdefault("later answers differ", junk)
    return [f"action {junk[:12]!r} fits nothing, yet {problem}" for problem, junk in problems.items()]


async def _ending(adapter: EnvAdapter, task: Task, seed: int, max_steps: int) -> list[str]:
    """An episode that is over stays over and pays nothing more; a fresh reset starts it anew."""
    env = adapter.make()
    first = step = await env.reset(task, seed=seed)
    for action in list(adapter.oracle(task) or ())[:max_steps]:
        step = await env.step(action)
    problems: list[str] = []
    if step.done:
        late = await env.step("look")
        if not late.done or late.reward:
            problems.append("a step after the end must be done and pay 0")
    if await env.reset(task, seed=seed) != first:
        problems.append("a second reset of the same episode holder differs from the first")
    await env.close()
    return problems


def _step_problems(step: Step, task: Task) -> Iterable[str]:
    if not (math.isfinite(step.reward) and 0.0 <= step.reward <= 1.0):
        yield f"reward {step.reward} is outside [0, 1]"
    score = step.info.get("task_score")
    if not (isinstance(score, int | float) and 0.0 <= score <= 1.0):
        yield "info must hold task_score in [0, 1]"
    if not isinstance(step.info.get("success"), bool):
        yield "info must hold success (bool)"
    if step.info.get("task_id") != task.id:
        yield "info must hold the task's task_id"
    if not isinstance(step.text, str):
        yield "text must be a str"
    listed = () if step.admissible is None else step.admissible
    if not (isinstance(listed, list | tuple) and all(isinstance(action, str) for action in listed)):
        yield "admissible must be a tuple of str, or None"
    if not _is_json(dict(step.info)):
        yield "info does not survive JSON"
