"""Clones of products, equal in every text and wrong in price or options: bait for a shopper who reads no further."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from envs.webshop.products import Product
from flwr_agent.seeds import seed_for

PRICE = 9999.0
PREFIXES = {"v_price": "LK_PRICE_", "v_color": "LK_COLOR_", "v_size": "LK_SIZE_", "v_price_color": "LK_PCOL_"}
"""Kind -> what a clone's asin begins with."""
FAR_COLOURS = {
    "black": ("yellow", "white", "red"),
    "blue": ("orange", "yellow", "red"),
    "white": ("black", "red", "green"),
    "red": ("blue", "purple", "green"),
    "navy": ("orange", "yellow", "pink"),
    "grey": ("red", "green", "yellow"),
    "gray": ("red", "green", "yellow"),
    "pink": ("blue", "green", "black"),
    "green": ("red", "pink", "orange"),
    "yellow": ("blue", "black", "purple"),
    "purple": ("orange", "green", "yellow"),
    "brown": ("blue", "green", "pink"),
    "beige": ("black", "blue", "red"),
}
"""Colour word -> colours that nobody takes for it; the first word that a value contains counts."""
NO_COLOURS = ("neon-fuchsia", "electric-magenta", "iridescent-teal")
FAR_SIZES = {
    **dict.fromkeys(
        ("large", "x-large", "xx-large", "3x-large", "4x-large", "5x-large"), ("small", "x-small", "xx-small")
    ),
    "medium": ("xx-small", "x-small", "xx-large"),
    "small": ("x-large", "xx-large", "large"),
    "x-small": ("large", "xx-large", "x-large"),
}
NO_SIZES = ("xxxxxxx-small", "one-size-fits-no-one", "unknown-size")


def clones(products: Iterable[Product], kind: str, seed: int) -> Iterator[Product]:
    """A clone of every product that has what `kind` changes, in catalogue order; the same for the same arguments."""
    draw = random.Random(seed_for(seed, "lookalike", kind))
    for product in products:
        options = dict(product.options)
        if kind in ("v_color", "v_price_color"):
            if "color" not in options:
                continue
            options["color"] = _drawn(options["color"], _far_colours, draw)
        if kind == "v_size":
            if "size" not in options:
                continue
            options["size"] = _drawn(options["size"], _far_sizes, draw)
        price, tag = (PRICE, f"${PRICE}") if "price" in kind else (product.price, product.price_tag)
        asin = PREFIXES[kind] + product.asin
        yield replace(product, asin=asin, price=price, price_tag=tag, options=options)


def _drawn(values, alternatives, draw: random.Random) -> tuple[str, ...]:
    return tuple(dict.fromkeys(draw.choice(alternatives(value)) for value in values))


def _far_colours(value: str) -> Sequence[str]:
    return next((far for word, far in FAR_COLOURS.items() if word in value), NO_COLOURS)


def _far_sizes(value: str) -> Sequence[str]:
    return FAR_SIZES.get(value, NO_SIZES)
