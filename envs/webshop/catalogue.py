"""The embedded catalogue: 1,000 made-up products and 6,900 goals in WebShop's file schema, from a small vocabulary.

Every word is a single plain word, so that a tiny word-level model can learn to shop here. What a product is called,
offers and costs is a function of its position alone; `tests/envs/test_webshop_catalogue.py` holds the laws.
"""

from __future__ import annotations

import base64
import hashlib
import itertools
import random
from typing import Any

from flwr_agent.seeds import seed_for

COLORS = ("black", "white", "red", "blue", "green", "pink")
CATEGORIES: dict[str, dict[str, Any]] = {
    "fashion": {
        "path": "Clothing",
        "types": ("jacket", "shirt", "dress", "boots", "scarf"),
        "attributes": ("soft", "warm", "stretchy", "casual", "formal", "slim", "waterproof"),
        "options": {"color": COLORS, "size": ("petite", "small", "medium", "large", "tall")},
    },
    "electronics": {
        "path": "Devices",
        "types": ("speaker", "keyboard", "camera", "charger", "headphones"),
        "attributes": ("wireless", "portable", "rechargeable", "compact", "durable", "fast", "quiet"),
        "options": {"color": COLORS, "plug": ("european", "american", "british", "japanese", "swiss")},
    },
    "garden": {
        "path": "Home",
        "types": ("table", "chair", "lamp", "shelf", "rug"),
        "attributes": ("modern", "rustic", "sturdy", "handmade", "adjustable", "outdoor", "narrow"),
        "options": {"color": COLORS, "material": ("oak", "pine", "bamboo", "glass", "iron")},
    },
    "beauty": {
        "path": "Care",
        "types": ("shampoo", "lotion", "soap", "perfume", "balm"),
        "attributes": ("gentle", "organic", "herbal", "vegan", "soothing", "natural", "silky"),
        "options": {
            "bottle": ("pump", "spray", "tube", "jar", "dropper", "pouch"),
            "scent": ("vanilla", "citrus", "jasmine", "cedar", "almond"),
        },
    },
    "grocery": {
        "path": "Food",
        "types": ("tea", "cookies", "crackers", "noodles", "sauce"),
        "attributes": ("sweet", "spicy", "crunchy", "salty", "roasted", "smoky", "fresh"),
        "options": {
            "pack": ("single", "double", "triple", "family", "party", "bulk"),
            "flavor": ("honey", "garlic", "pepper", "cheese", "ginger"),
        },
    },
}
PRODUCTS_PER_TYPE = 40
NUM_CHOICES = ((3, 3), (3, 3), (3, 4), (4, 3), (3, 4), (3, 5))
"""Values per option group, by position: 69 goals per six products."""
NUM_WITH_GOALS = 24
"""Products of a type that have an instruction (276 goals); the others only stand in the way."""
PRICES, HIGH_PRICES = (15, 25, 35, 45), (65, 75, 85, 95)
"""Prices of products with goals and of the others: most bounds (30 to 80) rule the others out."""
SPLITS = {"val": (2, 3), "demo": (0, 1, 4, 5, 8, 9, 12, 13, 16, 17, 20, 21)}
"""Positions within a type whose goals are held out, or are for demonstrations; all others train."""
PRAISE = ("really {}", "as {} as it gets", "{} every day", "still {} after years of use", "{}, say those who own one")
MAX_PRAISE = 6
"""Further bullets of a product. They praise its own attributes, some more often than others and in more words than
others, so that engines which weigh repetition and length differently rank differently."""
TYPES = frozenset(kind for category in CATEGORIES.values() for kind in category["types"])


def generate() -> tuple[list[dict[str, Any]], dict[str, dict[str, Any]], dict[str, str]]:
    """`(items, instructions, split by asin)`: the first two as WebShop's `items_*.json` and `items_ins_*.json`."""
    items: list[dict[str, Any]] = []
    instructions: dict[str, dict[str, Any]] = {}
    split_of: dict[str, str] = {}
    for category, spec in CATEGORIES.items():
        for kind in spec["types"]:
            triples = list(itertools.combinations(spec["attributes"], 3))
            _rng(kind, "attributes").shuffle(triples)
            for position in range(PRODUCTS_PER_TYPE):
                attributes = _rng(kind, "order", position).sample(triples[position % len(triples)], 3)
                item = _item(category, kind, position, attributes)
                items.append(item)
                instructions[item["asin"]] = _instruction(kind, position, attributes)
                split_of[item["asin"]] = next((s for s, held in SPLITS.items() if position in held), "train")
    return items, instructions, split_of


def keywords(title: str) -> frozenset[str]:
    """The type word of a title of this catalogue."""
    return frozenset(title.lower().split()) & TYPES


def _rng(*purpose: object) -> random.Random:
    return random.Random(seed_for("webshop catalogue", *purpose))


def _item(category: str, kind: str, position: int, attributes: list[str]) -> dict[str, Any]:
    spec = CATEGORIES[category]
    first, second, third = attributes
    price = _rng(kind, "price", position).choice(PRICES if position < NUM_WITH_GOALS else HIGH_PRICES)
    return {
        "asin": _asin(kind, position),
        "name": " ".join([*attributes, kind]).title(),
        "brand": "Sample",
        "category": category,
        "query": kind,
        "product_category": f"{spec['path']} › {kind.title()}",
        "pricing": f"${price}.00",
        "full_description": f"This {kind} is {first}, {second} and {third}.",
        "small_description": [f"{first.title()} and {second}", f"Also {third}", *_praise(kind, position, attributes)],
        "product_information": {},
        "average_rating": "",
        "images": [],
        "customization_options": {
            name.title(): [
                {"value": value, "is_selected": False, "price": 0, "image": None, "url": None}
                for value in _rng(kind, name, position).sample(values, count)
            ]
            for (name, values), count in zip(
                spec["options"].items(), NUM_CHOICES[position % len(NUM_CHOICES)], strict=True
            )
        },
    }


def _praise(kind: str, position: int, attributes: list[str]) -> list[str]:
    draw = _rng(kind, "praise", position)
    count = draw.randint(0, MAX_PRAISE)
    return [draw.choice(PRAISE).format(draw.choice(attributes)).capitalize() for _ in range(count)]


def _instruction(kind: str, position: int, attributes: list[str]) -> dict[str, Any]:
    entry: dict[str, Any] = {"attributes": attributes}
    if position < NUM_WITH_GOALS:
        wanted = _rng(kind, "instruction", position).sample(attributes, 2)
        entry |= {"instruction": f"Find me {', '.join(wanted)} {kind}", "instruction_attributes": wanted}
    return entry


def _asin(kind: str, position: int) -> str:
    digest = hashlib.sha256(f"{kind} {position}".encode()).digest()
    return "B0" + base64.b32encode(digest).decode()[:8]
