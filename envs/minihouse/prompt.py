"""Prompts and answers of a household, whatever engine plays it: ALFWorld's paper template and a compact one."""

from __future__ import annotations

import re
from collections.abc import Sequence

from envs.base import View
from envs.prompts import answer_format, compact, past, plain_answer, project

ROLE = "You are an expert agent in the ALFRED embodied environment."
TASK_MARK = "Your task is to: "
"""What the task sentence follows in the first text of a game."""
ANSWER_TAIL = 30
"""Characters tried as the action when an answer has no action tag."""

_THING = r"[a-z]+ \d+"
_COMMAND = re.compile(
    rf"look|inventory|(go to|open|close|examine|use) {_THING}"
    rf"|(take|move|put|clean|heat|cool|slice) {_THING} (from|to|in/on|with) {_THING}"
)
_SEEN = re.compile(
    r"(?P<closed>\w+ \d+) is closed\.|(?:On the (?P<on>\w+ \d+)|The (?P<open>\w+ \d+) is open\. In it),"
    r" you see (?P<things>[^.]*)\."
)
_ROOM = re.compile(r"Looking quickly around you, you see ([^.]*)\.")


def instruction(intro: str) -> str:
    r"""The task in words: what follows `Your task is to: ` in the first text of a game.

    Example:
        >>> instruction("-= Welcome to TextWorld, ALFRED! =-\n\nYour task is to: put a pen in bed.")
        'put a pen in bed.'
    """
    return intro.partition(TASK_MARK)[2].strip()


def shown(admissible: Sequence[str]) -> tuple[str, ...]:
    """The commands that are listed to the policy: all but `help`."""
    return tuple(command for command in admissible if command != "help")


def render(view: View, style: str) -> str:
    """The user message of one windowed turn."""
    return compact(view, shorten) if style == "compact" else _paper(view)


def system_prompt() -> str:
    """System message of concat mode."""
    return f"{ROLE}\n{answer_format()}"


def parse_action(model_text: str, style: str) -> tuple[str, bool]:
    """`(command, is_valid)`: the paper's tags, or in compact style a first line that reads like a command."""
    if style == "compact":
        action = plain_answer(model_text)
        return action, bool(_COMMAND.fullmatch(action))
    return project(model_text, tail=ANSWER_TAIL)


def shorten(text: str) -> str:
    """An observation in the fewest plain words; the task is left out, because the prompt states it.

    Example:
        >>> shorten("You arrive at desk 1. On the desk 1, you see a pen 2, and a mug 1.")
        'on desk 1 : pen 2 , mug 1'
    """
    room = _ROOM.search(text)
    if room:
        return f"room : {_things(room.group(1))}"
    seen = _SEEN.search(text)
    if seen is None:
        return text.strip().rstrip(".").lower()
    if seen["closed"]:
        return f"{seen['closed']} closed"
    where = f"on {seen['on']}" if seen["on"] else f"in {seen['open']}"
    return f"{where} : {_things(seen['things'])}"


def _things(listed: str) -> str:
    return re.sub(r"(?:,)? and a |, a |^a ", " , ", listed).strip(" ,")


def _paper(view: View) -> str:
    role = ROLE if view.num_steps == 0 else f"{ROLE} {TASK_MARK}{view.instruction}"
    listed = ",\n ".join(f"'{command}'" for command in shown(view.admissible or ()))
    parts = [role, past(view), f"Your current observation is: {view.observation}", f"Admissible actions: [{listed}]"]
    return "\n" + "\n".join(filter(None, parts)) + f"\n\n{answer_format()}\n"
