"""How a shopper who knows the shelves buys what was asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

from envs.webshop.session import BUY, NEXT, Session

Begin = Callable[[], Session]
"""A session at the start of the task; searches of two sessions find the same."""
Express = Callable[[str, Session], str]
"""The policy's name of an engine action that applies now."""
NEAR_PAGES = 5
"""Result pages that are looked through before other words are tried."""
MAX_SEARCHES = 16
"""How often a search is repeated where its results are left to chance."""


class Route(NamedTuple):
    """Where a product that scores 1.0 turns up."""

    words: str
    num_searches: int
    """The last of which finds it."""
    page: int
    asin: str

    @property
    def num_moves(self) -> int:
        """Actions until its page is shown."""
        return self.num_searches + self.page - 1


def solve(begin: Begin, express: Express, *, is_chancy: bool) -> list[str] | None:
    """Search the instruction's words, else the title; open the first product that can score 1.0, choose, buy.

    Where results are left to chance, searches are repeated and the shortest way is taken. None when no such product
    turns up.
    """
    goal = begin().goal
    wanted = [*goal.attributes, goal.product.query, *(value for _, value in goal.options)]
    queries = " ".join(wanted), goal.product.title
    route = _shortest(begin, queries) if is_chancy else _near(begin, queries)
    return None if route is None else _actions(begin(), route, express)


def _near(begin: Begin, queries: tuple[str, ...]) -> Route | None:
    wins: dict[str, bool] = {}
    far: list[Route] = []
    for words in queries:
        for route in _routes(begin(), words, 1, wins):
            if route.page <= NEAR_PAGES:
                return route
            far.append(route)
    return far[0] if far else None


def _shortest(begin: Begin, queries: tuple[str, ...]) -> Route | None:
    wins: dict[str, bool] = {}
    best: Route | None = None
    for words in queries:
        for route in _routes(begin(), words, MAX_SEARCHES, wins):
            if best is None or route.num_moves < best.num_moves:
                best = route
            if route.num_searches + 1 >= best.num_moves:
                break
    return best


def _routes(session: Session, words: str, num_searches: int, wins: dict[str, bool]) -> Iterator[Route]:
    """The first product that can score 1.0 in the results of each search in turn, where there is one."""
    for number in range(1, num_searches + 1):
        session.act(f"search[{words}]")
        if asin := _first_win(session, wins):
            yield Route(words, number, session.number, asin)


def _first_win(session: Session, wins: dict[str, bool]) -> str:
    """The asin of the first product listed that can score 1.0, with the session left on its page; else empty."""
    while shown := session.shown():
        for product in shown:
            if product.asin not in wins:
                wins[product.asin] = _reward(session, product.asin) == 1.0
            if wins[product.asin]:
                return product.asin
        session.act(f"click[{NEXT}]")
    return ""


def _reward(session: Session, asin: str) -> float:
    session = replace(session)
    for action in _purchase(session, asin):
        session.act(action)
    return session.reward


def _purchase(session: Session, asin: str) -> list[str]:
    return [f"click[{asin}]", *(f"click[{value}]" for _, value in session.goal.options), f"click[{BUY}]"]


def _actions(session: Session, route: Route, express: Express) -> list[str]:
    searches = [f"search[{route.words}]"] * route.num_searches
    steps = [*searches, *[f"click[{NEXT}]"] * (route.page - 1), *_purchase(session, route.asin)]
    named: list[str] = []
    for step in steps:
        named.append(express(step.lower(), session))
        session.act(step)
    return named
