"""Prompt pieces that several environments share: the paper's turn layout and answer format, and the compact layout."""

from __future__ import annotations

import re
from collections.abc import Callable

from envs.base import View
from flwr_agent.errors import ConfigError

STYLES = ("paper", "compact")
"""`paper`: the published turn layout, for instruction-tuned models; `compact`: few plain words, for tiny models."""

_ACTION = re.compile(r"<action>(.*?)</action>", re.DOTALL)
_CJK = re.compile(r"[\u4e00-\u9fff]")


def known(style: str) -> str:
    """The prompt style, if it is one.

    Raises:
        ConfigError: it is not.
    """
    if style not in STYLES:
        raise ConfigError("prompt.style", style, "no such prompt style", allowed=STYLES)
    return style


def project(model_text: str, *, tail: int) -> tuple[str, bool]:
    """`(action, is_valid)` of an answer in the paper's format; total, and the action is lower-case.

    The action is what stands in the first `<action>` tag, else the last `tail` characters. The format is broken when
    the tag is missing, when `<think>` or `</think>` is missing, or when the text holds a CJK ideograph.

    Example:
        >>> project("<think>near</think><action>Go to fridge 1</action>", tail=30)
        ('go to fridge 1', True)
        >>> project("open fridge 1", tail=8)
        ('fridge 1', False)
    """
    lowered = model_text.lower()
    found = _ACTION.search(lowered)
    action = found.group(1) if found else lowered[-tail:]
    has_thought = "<think>" in model_text and "</think>" in model_text
    return action.strip(), bool(found) and has_thought and not _CJK.search(model_text)


def plain_answer(model_text: str) -> str:
    """The action of a compact answer: its first line with words in it, lower-case, blanks squeezed.

    Example:
        >>> plain_answer("  Go to  fridge 1 ")
        'go to fridge 1'
    """
    lines = (" ".join(line.split()) for line in model_text.lower().splitlines())
    return next(filter(None, lines), "")


def past(view: View) -> str:
    """What a paper prompt says of earlier turns, with absolute turn numbers; empty on the first turn.

    Example:
        >>> past(View("t", "now", None, (("seen", "look"),), num_steps=3)).splitlines()[1]
        "[Observation 3: 'seen', Action 3: 'look']"
    """
    if view.num_steps == 0:
        return ""
    first = view.num_steps - len(view.history) + 1
    lines = [
        f"[Observation {number}: '{observation.strip()}', Action {number}: '{action.strip()}']"
        for number, (observation, action) in enumerate(view.history, first)
    ]
    return "\n".join(
        [
            f"Steps taken so far: {view.num_steps}. The last {len(lines)} observations and your actions:",
            *lines,
            f"You are now at step {view.num_steps + 1}.",
        ]
    )


def answer_format(*, goal: str = "", choice: str = "admissible action", tag: str = "action") -> str:
    """The three closing sentences of a paper prompt; `goal` ends the sentence on reasoning.

    Example:
        >>> answer_format(choice="number", tag="answer").splitlines()[-1]
        'Then choose one number and give it inside <answer> </answer> tags.'
    """
    return (
        "It is your turn to act.\n"
        f"First reason step by step about the situation{goal}; the reasoning must stand inside <think> </think> tags.\n"
        f"Then choose one {choice} and give it inside <{tag}> </{tag}> tags."
    )


def compact(view: View, shorten: Callable[[str], str] = str.strip) -> str:
    """The compact prompt: the task, the last observations with their actions, the current observation.

    Example:
        >>> print(compact(View("guess 1 to 50", "higher", None, (("start", "25"),), num_steps=1)))
        task : guess 1 to 50
        start > 25
        higher >
    """
    pairs = [f"{shorten(observation)} > {action}" for observation, action in view.history]
    return "\n".join([f"task : {view.instruction.strip().rstrip('.')}", *pairs, f"{shorten(view.observation)} >"])
