"""Prompts and answers of a shell: the paper's layout, and a compact one whose answer is the command line itself."""

from __future__ import annotations

import re

from envs.base import View
from envs.prompts import answer_format, compact, past, project

ROLE = "You are an expert agent in a Linux shell."
RULES = (
    "Each action is one bash command, run afresh in the working directory; you see its exit code and the end of what it "
    "prints. There is no network. Give the action submit when the task is done."
)
_ACTION = re.compile(r"<action>(.*?)</action>", re.DOTALL | re.IGNORECASE)


def system_prompt() -> str:
    """Role, rules and answer format."""
    return f"{ROLE} {RULES}\n{answer_format(choice='command')}"


def render(view: View, style: str) -> str:
    """The user message of one windowed turn."""
    if style == "compact":
        return compact(view)
    task = f"Your task: {view.instruction}" if view.num_steps else ""
    parts = [f"{ROLE} {RULES}", task, past(view), f"Your current observation is: {view.observation}"]
    return "\n" + "\n".join(filter(None, parts)) + f"\n\n{answer_format(choice='command')}\n"


def parse_action(model_text: str, style: str) -> tuple[str, bool]:
    r"""`(command, is_valid)`: the first line with words in it, or what stands in the paper's tag; the case is kept.

    An answer without a tag is no command: nothing of its prose is run.

    Example:
        >>> parse_action("<think>look</think><action>ls -A\nwc -l A</action>", "paper")
        ('ls -A\nwc -l A', True)
        >>> parse_action(" ls -A ", "compact")
        ('ls -A', True)
    """
    if style == "compact":
        lines = (line.strip() for line in model_text.splitlines())
        command = next(filter(None, lines), "")
        return command, bool(command)
    found = _ACTION.search(model_text)
    return (found.group(1).strip() if found else ""), project(model_text, tail=1)[1]
