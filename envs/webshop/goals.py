"""Goals: what a shopper was told to buy, made from products and instruction files."""

from __future__ import annotations

import hashlib
import itertools
import random
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from envs.webshop.products import DATA_SEED, Product, option_value
from flwr_agent.seeds import seed_for

NO_BOUND = 1_000_000.0
"""Price bound of a goal whose text names none."""


@dataclass(frozen=True, slots=True)
class Goal:
    """One thing to buy.

    Example:
        >>> goal.instruction
        'Find me soft, warm jacket with color: red, and size: small, and price lower than 40.00 dollars'
    """

    id: str
    """`asin_<decimal md5 of the sorted options>`, stable across processes, orders and catalogue filters."""
    product: Product
    """The product the goal was made from."""
    instruction: str
    attributes: tuple[str, ...]
    options: tuple[tuple[str, str], ...]
    """Sorted (option name, value) pairs."""
    price_upper: float


def synthetic_goals(products: Iterable[Product], instructions: Mapping[str, Any]) -> Iterator[Goal]:
    """One goal per element of the cartesian product of a product's option values, for products with an instruction."""
    for product in products:
        entry = instructions.get(product.asin, {})
        if entry.get("instruction") is None:
            continue
        bound, clause = price_bound(product, "synthetic")
        names = sorted(product.options)
        for values in itertools.product(*(product.options[name] for name in names)):
            options = tuple(zip(names, values, strict=True))
            wanted = ", and ".join(f"{name}: {value}" for name, value in options)
            text = entry["instruction"] + (f" with {wanted}" if wanted else "") + clause
            goal_id = task_id(product.asin, options, text)
            yield Goal(goal_id, product, text, tuple(entry["instruction_attributes"]), options, bound)


def human_goals(products: Iterable[Product], instructions: Mapping[str, Any]) -> Iterator[Goal]:
    """One goal per instruction that a person wrote, unless it names no attribute; wanted options are plain values."""
    for product in products:
        for i, entry in enumerate(instructions.get(product.asin, ())):
            if not entry["instruction_attributes"]:
                continue
            bound, clause = price_bound(product, i)
            text = entry["instruction"].rstrip(".") + clause
            options = tuple(sorted(_located(product, value) for value in entry["instruction_options"]))
            goal_id = task_id(product.asin, (), entry["instruction"])
            yield Goal(goal_id, product, text, tuple(entry["instruction_attributes"]), options, bound)


def _located(product: Product, value: str) -> tuple[str, str]:
    """`(option name, value)`; the name is empty when the product offers no such value."""
    value = option_value(value)
    return next((name for name, values in product.options.items() if value in values), ""), value


def task_id(asin: str, options: tuple[tuple[str, str], ...], instruction: str) -> str:
    """`asin_N`, with N the 128-bit md5 of the sorted options' repr (or of the instruction) read as an integer.

    Example:
        >>> task_id("B01", (), "Find me a hat")
        'B01_247912562124202884386293757975989991638'
    """
    key = repr(sorted(options)) if options else instruction
    return f"{asin}_{int(hashlib.md5(key.encode(), usedforsecurity=False).hexdigest(), 16)}"


def price_bound(product: Product, purpose: object) -> tuple[float, str]:
    """A bound above the price and the words that name it: the larger of two of the next four multiples of ten."""
    bands = [band for band in range(10, 1000, 10) if band > product.price][:4]
    if len(bands) < 2:
        return NO_BOUND, ""
    draw = random.Random(seed_for(DATA_SEED, "webshop", "bound", product.asin, purpose))
    bound = float(max(draw.sample(bands, 2)))
    return bound, f", and price lower than {bound:.2f} dollars"


def shuffled(goals: Iterable[Goal]) -> list[Goal]:
    """Goals in the one canonical order; of goals with one id the first is kept."""
    order = list({goal.id: goal for goal in reversed(list(goals))}.values())[::-1]
    random.Random(seed_for(DATA_SEED, "webshop", "goals")).shuffle(order)
    return order
