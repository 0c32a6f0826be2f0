"""A prompt style for tiny word-level models: few, plain, blank-separated words; products are numbered.

A policy sees `task : soft warm jacket color red size small price 40`, its last actions, and `results 1 soft warm slim
jacket 35 2 … >`, and answers `click 1`: an action is an answer, in words. `resolve` gives the engine's name of it.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import lru_cache

from envs import prompts
from envs.base import View
from envs.webshop.session import NEXT, PREV, Page, Session, split_action

SYSTEM = "answer with one action : search words , click number , click option , click buy now"
PLAIN_LABELS = {NEXT.lower(): "next", PREV.lower(): "prev"}
"""Words for labels that are not plain words."""
VERBS = ("search", "click")
_WORD = re.compile(r"[a-z0-9]+(?:['.-][a-z0-9]+)*")
_ZEROS = re.compile(r"(?<=\d)\.0+\b")
_FILLER = frozenset(("find", "me", "a", "an", "with", "and", "for", "lower", "than", "dollars"))


@lru_cache(maxsize=1 << 16)
def words(text: str) -> str:
    """Lower-cased words of a text, blank-separated, without punctuation and trailing zeros of prices.

    Example:
        >>> words("Soft, Warm Jacket: $40.00")
        'soft warm jacket 40'
    """
    return " ".join(_WORD.findall(_ZEROS.sub("", text.lower())))


def brief(instruction: str) -> str:
    """The words of an instruction that say something.

    Example:
        >>> brief("Find me soft, warm jacket with size: small, and price lower than 40.00 dollars")
        'soft warm jacket size small price 40'
    """
    return " ".join(word for word in words(instruction).split() if word not in _FILLER)


def page_text(session: Session) -> str:
    """The page in as few words as possible; chosen options are not shown, as on the published pages."""
    product = session.product
    if session.page is Page.RESULTS:
        number = f" page {session.number}" if session.number > 1 else ""
        listed = "".join(f" {i} {words(f'{p.title} {p.price_tag}')}" for i, p in enumerate(session.shown(), start=1))
        return f"results{number}{listed}"
    if product is None or session.page is Page.DONE:
        return session.page.value
    if session.page is Page.ITEM:
        options = " ".join(f"{name} {' '.join(values)}" for name, values in product.options.items())
        return words(f"item {product.title} {product.price_tag} {options}")
    return f"{session.page} {words(' '.join(session.text()[4:]))}".strip()


def admissible(session: Session) -> tuple[str, ...]:
    """Actions in words; on the search page, a search for the instruction's own words."""
    search = (f"search {brief(session.goal.instruction)}",) if session.page is Page.SEARCH else ()
    names = _names(session)
    return search + tuple(f"click {names.get(label, label)}" for label in session.clickables() if label != "search")


def resolve(action: str, session: Session) -> str:
    """The engine's name of an action: `click 3` on a result page is a click on its third product."""
    verb, label = split_action(action)
    if not label:
        verb, _, label = action.partition(" ")
    if verb not in VERBS or not label:
        return ""
    if verb == "search":
        return f"search[{label}]"
    plain = label.replace(" ", "")
    return f"click[{next((own for own, name in _names(session).items() if name == plain), label)}]"


def express(action: str, session: Session) -> str:
    """The policy's name of an engine action that applies now; undone by `resolve`."""
    verb, label = split_action(action)
    return f"{verb} {_names(session).get(label, label)}"


def _names(session: Session) -> dict[str, str]:
    shown = session.shown() if session.page is Page.RESULTS else []
    return PLAIN_LABELS | {product.asin.lower(): str(n) for n, product in enumerate(shown, start=1)}


def render(view: View) -> str:
    """The user message of one windowed turn; of past observations it names the page only."""
    history = tuple((observation.partition(" ")[0], action) for observation, action in view.history)
    return prompts.compact(replace(view, instruction=brief(view.instruction), history=history))


def parse(text: str) -> tuple[str, bool]:
    """`(action, is_valid)`: the first line in plain words, valid when it is `search …` or `click …`."""
    action = prompts.plain_answer(text)
    verb, _, rest = action.partition(" ")
    return action, verb in VERBS and bool(rest)
