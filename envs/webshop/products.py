"""Products as the shop sells them, read from WebShop's own file schema."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flwr_agent.errors import DataError
from flwr_agent.seeds import seed_for

DATA_SEED = 42
"""Seed of every draw that belongs to the data (prices, price bounds, goal order), whatever a run's seed is."""


@dataclass(frozen=True, slots=True)
class Product:
    """One product.

    Example:
        >>> parse_products([{"asin": "B01", "name": "Red Hat", ...}], {}, "items.json")[0].price_tag
        '$9.5'
    """

    asin: str
    title: str
    description: str
    bullets: tuple[str, ...]
    price: float
    """What is paid; drawn once per asin when the file names a range."""
    price_tag: str
    """What the page shows: `$9.5` or `$9.5 to $12.0`."""
    options: Mapping[str, tuple[str, ...]]
    """Lower-cased option name -> distinct lower-cased values, in file order."""
    attributes: tuple[str, ...]
    category: str
    query: str
    crumbs: frozenset[str]
    """Parts of the category path."""

    def document(self) -> str:
        """What the search index reads: title, description, first bullet, options."""
        options = [f"{name}: {_listing(values)}" for name, values in self.options.items()]
        return " ".join([self.title, self.description, *self.bullets[:1], *options]).lower()


def _listing(values: Sequence[str]) -> str:
    return values[0] if len(values) == 1 else ", ".join(values[:-1]) + f", and {values[-1]}"


def option_value(text: str) -> str:
    """An option value as pages and goals name it.

    Example:
        >>> option_value(" Red/Blue ")
        'red | blue'
    """
    return text.strip().replace("/", " | ").lower()


def parse_products(records: Any, attributes: Mapping[str, Sequence[str]], source: str) -> list[Product]:
    """Products of a decoded `items_*.json`; records whose asin is `nan` or longer than 10 characters are left out.

    Raises:
        DataError: the list is empty, a field is missing or of the wrong type, a price is not finite, or an asin repeats.
    """
    if not isinstance(records, list) or not records:
        raise DataError(source, "catalogue", "must be a list of at least one product")
    products: dict[str, Product] = {}
    for i, record in enumerate(records):
        reader = _Reader(record, source, f"[{i}]")
        asin = reader.text("asin")
        if asin == "nan" or (len(asin) > 10 and not asin.startswith("LK_")):
            continue
        if asin in products:
            raise DataError(source, f"[{i}].asin", f"{asin} occurs twice; keep one of the records")
        products[asin] = _product(asin, reader, tuple(attributes.get(asin, ())) or ("DUMMY_ATTR",))
    if not products:
        raise DataError(source, "catalogue", "no record has a usable asin")
    return list(products.values())


def _product(asin: str, reader: _Reader, attributes: tuple[str, ...]) -> Product:
    price, tag = _price(asin, reader)
    return Product(
        asin=asin,
        title=reader.text("name"),
        description=reader.text("full_description"),
        bullets=reader.texts("small_description"),
        price=price,
        price_tag=tag,
        options=_options(reader),
        attributes=attributes,
        category=reader.text("category"),
        query=reader.text("query").lower().strip(),
        crumbs=frozenset(part.strip() for part in reader.text("product_category").split("›")),
    )


@dataclass(frozen=True, slots=True)
class _Reader:
    """Typed access to one record; every complaint names file, record and field."""

    record: Any
    source: str
    where: str

    def error(self, field: str, fix: str) -> DataError:
        return DataError(self.source, f"{self.where}.{field}", fix)

    def get(self, field: str) -> Any:
        if not isinstance(self.record, dict):
            raise DataError(self.source, self.where, f"must be an object, not {self.record!r:.40}")
        if field not in self.record:
            raise self.error(field, "missing; every product needs it")
        return self.record[field]

    def text(self, field: str) -> str:
        value = self.get(field)
        if not isinstance(value, str):
            raise self.error(field, f"must be text, not {value!r:.40}")
        return value

    def texts(self, field: str) -> tuple[str, ...]:
        value = self.get(field)
        parts = value if isinstance(value, list) else [value]
        if not all(isinstance(part, str) for part in parts):
            raise self.error(field, "must be text or a list of texts")
        return tuple(parts)


def _price(asin: str, reader: _Reader) -> tuple[float, str]:
    parts = reader.text("pricing").split("$")[1:]
    try:
        amounts = [float(re.sub(r"[^\d.]", "", part)) for part in parts]
    except ValueError:
        amounts = [math.nan]
    if not all(map(math.isfinite, amounts)):
        raise reader.error("pricing", "must be empty or hold prices such as $12.98")
    if not amounts:
        return 100.0, "$100.0"
    if len(amounts) == 1:
        return amounts[0], f"${amounts[0]}"
    low, high = amounts[:2]
    draw = random.Random(seed_for(DATA_SEED, "webshop", "price", asin))
    return draw.uniform(low, high), f"${low} to ${high}"


def _options(reader: _Reader) -> dict[str, tuple[str, ...]]:
    field, options = "customization_options", {}
    groups = reader.get(field) or {}
    if not isinstance(groups, dict):
        raise reader.error(field, "must be empty or hold choices by option name")
    for name, entries in groups.items():
        values: dict[str, None] = {}
        if not isinstance(entries, list | None):
            raise reader.error(f"{field}.{name}", "must be null or a list of choices")
        for entry in entries or ():
            if not isinstance(entry, dict) or not isinstance(entry.get("value"), str):
                raise reader.error(f"{field}.{name}", "every choice needs a `value` text")
            values[option_value(entry["value"])] = None
        values.pop("", None)
        if values:
            options[name.lower()] = tuple(values)
    return options
