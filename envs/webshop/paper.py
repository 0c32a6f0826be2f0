"""The published prompt style: quoted observations, a list of admissible actions, reasoning before an action tag."""

from __future__ import annotations

from dataclasses import replace

from envs import prompts
from envs.base import View
from envs.webshop.session import Page, Session

SEPARATOR = " [SEP] "
MAX_PROMPT_CHARS = 13_000
"""A prompt longer than this is rendered again without its history."""
TAIL_CHARS = 20
"""Characters at the end of an answer that are tried as the action when it has no action tag."""
_ROLE = "You act as an expert autonomous agent in the WebShop e-commerce environment."
SYSTEM = f"""{_ROLE}
Search with search[words] and press what a page shows with click[label]. Choose every option you were asked for \
before click[buy now], which ends the task.
{prompts.answer_format()}"""


def page_text(session: Session) -> str:
    """The page after the instruction, every part in single quotes; a page that shows no instruction stays as it is.

    Example:
        >>> page_text(Session(shop, goal, rank))
        "'Search'"
    """
    parts = session.text()
    task = session.goal.instruction.strip()
    if task not in parts:
        return SEPARATOR.join(parts)
    return SEPARATOR.join(f"'{part}'" for part in parts[parts.index(task) + 1 :])


def admissible(session: Session) -> tuple[str, ...]:
    """Actions listed to the policy."""
    search = ("search[<your query>]",) if session.page is Page.SEARCH else ()
    return search + tuple(f"click[{label}]" for label in session.clickables() if label != "search")


def resolve(action: str, _session: Session) -> str:
    """The engine's name of an action: the same."""
    return action


def express(action: str, _session: Session) -> str:
    """The policy's name of an engine action: the same."""
    return action


def render(view: View) -> str:
    """The user message of one windowed turn."""
    prompt = _render(view)
    return prompt if len(prompt) <= MAX_PROMPT_CHARS else _render(replace(view, history=(), num_steps=0))


def _render(view: View) -> str:
    actions = "".join(f"'{action}',\n" for action in view.admissible or ())
    lines = [
        _ROLE,
        f"Your task is: {view.instruction}.",
        prompts.past(view),
        f"The current observation is: {view.observation}.",
        f"The admissible actions now are:\n[\n{actions}].",
    ]
    closing = prompts.answer_format(goal=" and settle on the action that brings you closest to the goal")
    return "\n" + "\n".join(filter(None, lines)) + f"\n\n{closing}\n"


def parse(text: str) -> tuple[str, bool]:
    """`(action, is_valid)`: the content of the first action tag, else the last 20 characters."""
    return prompts.project(text, tail=TAIL_CHARS)
