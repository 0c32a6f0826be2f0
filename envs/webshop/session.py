"""One shopper in the shop: a state machine over pages, without HTML."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from envs.webshop.goals import Goal
from envs.webshop.products import Product
from envs.webshop.scoring import MODES, score
from envs.webshop.shop import Shop

PAGE_SIZE = 10
BACK, PREV, NEXT, BUY = "Back to Search", "< Prev", "Next >", "Buy Now"


class Page(StrEnum):
    """Where the shopper is."""

    SEARCH = "search"
    RESULTS = "results"
    ITEM = "item"
    DESCRIPTION = "description"
    FEATURES = "features"
    REVIEWS = "reviews"
    DONE = "done"


SUB_PAGES = (Page.DESCRIPTION, Page.FEATURES, Page.REVIEWS)


def split_action(action: str) -> tuple[str, str]:
    """`(name, lower-cased argument)` of `name[argument]`; the argument is empty when the text has no such form.

    Example:
        >>> split_action("click[Buy Now]")
        ('click', 'buy now')
    """
    line = action.partition("\n")[0]
    end = line.rfind("]")
    start = line.rfind("[", 0, max(end - 1, 0))
    return (line[:start], line[start + 1 : end].lower()) if start > 0 else (line, "")


@dataclass(slots=True)
class Session:
    """One episode's state; everything heavy is in the shared `Shop`."""

    shop: Shop
    goal: Goal
    rank: Callable[[str], Sequence[int]]
    """Query -> positions of products, best first."""
    mode: str = "strict"
    """How chosen options are matched: `strict` or `upstream`."""
    page: Page = Page.SEARCH
    hits: Sequence[int] = ()
    number: int = 1
    """Result page, from 1; pages past the last are empty."""
    product: Product | None = None
    chosen: dict[str, str] = field(default_factory=dict)
    """Option name -> value chosen on the item page."""
    reward: float = 0.0
    scores: dict[str, float] = field(default_factory=lambda: dict.fromkeys(MODES, 0.0))
    """The purchase by either matching; 0 before it."""

    def measures(self) -> dict[str, float]:
        """What an experiment watches: both scores of the purchase, and whether it was made without choosing an option."""
        bought = self.page is Page.DONE and self.product is not None
        at_once = bought and bool(self._product().options) and not self.chosen
        return {**{f"{mode}_score": value for mode, value in self.scores.items()}, "bought_at_once": float(at_once)}

    def shown(self) -> list[Product]:
        """Products of the current result page, in order."""
        first = (self.number - 1) * PAGE_SIZE
        return [self.shop.products[i] for i in self.hits[first : first + PAGE_SIZE]]

    def text(self) -> list[str]:
        """Visible strings of the current page, stripped, without empty ones."""
        if self.page is Page.DONE:
            parts = ["Thank you for shopping with us!", "Your score (min 0.0, max 1.0)", f"{self.reward}"]
        elif self.page is Page.SEARCH:
            parts = ["WebShop", "Instruction:", self.goal.instruction, "Search"]
        else:
            parts = ["Instruction:", self.goal.instruction, BACK, *self._body()]
        return [part.strip() for part in parts if part.strip()]

    def _body(self) -> list[str]:
        if self.page is Page.RESULTS:
            head = f"Page {self.number} (Total results: {len(self.hits)})"
            products = [text for p in self.shown() for text in (p.asin, p.title, p.price_tag)]
            return [head, *([PREV] if self.number > 1 else []), NEXT, *products]
        product = self._product()
        bodies: dict[Page, list[str]] = {
            Page.DESCRIPTION: [product.description],
            Page.FEATURES: list(product.bullets),
            Page.REVIEWS: [],
        }
        if self.page in bodies:
            return [PREV, *bodies[self.page]]
        options = [text for name, values in product.options.items() for text in (name, *values)]
        tail = ["Rating: N.A.", *(page.title() for page in SUB_PAGES), BUY]
        return [PREV, *options, product.title, f"Price: {product.price_tag}", *tail]

    def clickables(self) -> list[str]:
        """Lower-cased labels that a click may name here; `search` is shown but cannot be clicked."""
        if self.page is Page.DONE:
            return []
        if self.page is Page.SEARCH:
            return ["search"]
        if self.page is Page.RESULTS:
            labels = [BACK, *([PREV] if self.number > 1 else []), NEXT, *(p.asin for p in self.shown())]
        elif self.page is Page.ITEM:
            values = [value for values in self._product().options.values() for value in values]
            labels = [BACK, PREV, *SUB_PAGES, BUY, *values]
        else:
            labels = [BACK, PREV]
        return list(dict.fromkeys(label.lower() for label in labels))

    def act(self, action: str) -> None:
        """Apply `search[words]` (from any page) or `click[label]`; anything else changes nothing."""
        name, argument = split_action(action)
        if self.page is Page.DONE or not argument:
            return
        if name == "search":
            self._open_results(self.rank(argument))
        elif name == "click" and argument != "search" and argument in self.clickables():
            self._click(argument)

    def _click(self, label: str) -> None:
        if label == BACK.lower():
            self.page, self.hits, self.number, self.product, self.chosen = Page.SEARCH, (), 1, None, {}
        elif label == NEXT.lower():
            self.number += 1
        elif label == PREV.lower():
            self._back()
        elif self.page is Page.RESULTS:
            self.page, self.product, self.chosen = Page.ITEM, self.shop.by_asin[label], {}
        elif label == BUY.lower():
            product = self._product()
            self.scores = {
                mode: score(self.goal, product, self.chosen, mode=mode, keywords=self.shop.keywords) for mode in MODES
            }
            self.reward = self.scores[self.mode]
            self.page = Page.DONE
        elif label in SUB_PAGES:
            self.page = Page(label)
        else:
            self.chosen[self._group(label)] = label

    def _open_results(self, hits: Sequence[int]) -> None:
        self.page, self.hits, self.number, self.product, self.chosen = Page.RESULTS, hits, 1, None, {}

    def _back(self) -> None:
        if self.page is Page.RESULTS:
            self.number -= 1
        elif self.page is Page.ITEM:
            self.page, self.product, self.chosen = Page.RESULTS, None, {}
        else:
            self.page = Page.ITEM

    def _group(self, value: str) -> str:
        """The option that a click on `value` sets: the first that offers it and does not have it yet."""
        offering = [name for name, values in self._product().options.items() if value in values]
        return next((name for name in offering if self.chosen.get(name) != value), offering[0])

    def _product(self) -> Product:
        if self.product is None:
            raise RuntimeError(f"no product is open on the {self.page} page")
        return self.product
