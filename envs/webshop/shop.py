"""The immutable half of the environment: products, their index, goals by split; shared by any number of sessions."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from envs.base import Task
from envs.webshop import catalogue, files, shared
from envs.webshop.bm25 import LUCENE, Dialect, Index
from envs.webshop.goals import Goal, shuffled, synthetic_goals
from envs.webshop.large import MIN_PRODUCTS, LargeIndex
from envs.webshop.products import Product, parse_products
from envs.webshop.scoring import Keywords, content_words

MIN_SHARED = 10_000
"""Catalogues above this size are indexed once per machine."""


@dataclass(frozen=True, eq=False)
class Shop:
    """A catalogue that is open for business; one object per catalogue, so that what is made of it can be cached."""

    products: tuple[Product, ...]
    splits: Mapping[str, tuple[Goal, ...]]
    """Split -> goals in canonical order."""
    keywords: Keywords
    """The kind-naming words of a title, for the reward."""
    digest: str
    """SHA-256 of the data it was made from."""

    @cached_property
    def index(self) -> Index | LargeIndex:
        """Search index over every product, by position in `products`.

        Raises:
            ConfigError: the catalogue is large and the extra that searches it is not installed.
        """
        documents = (product.document() for product in self.products)
        return LargeIndex(documents) if len(self.products) > MIN_PRODUCTS else self.indexed(documents)

    def indexed(
        self,
        texts: Iterable[str],
        *,
        fields: str = "standard",
        dialect: Dialect = LUCENE,
        k1: float = 0.9,
        b: float = 0.4,
    ) -> Index:
        """An index over one text per product; `fields` says in a word what the texts are made of."""

        def build() -> Index:
            return Index.build(texts, dialect=dialect, k1=k1, b=b)

        if len(self.products) <= MIN_SHARED:
            return build()
        parts = [self.digest, len(self.products), fields, dialect.name, k1, b]
        return shared.mapped(hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16], build, dialect)

    @cached_property
    def tasks(self) -> dict[str, tuple[Task, ...]]:
        """Split -> its goals as tasks, in canonical order."""
        return {split: tuple(_task(goal, split) for goal in goals) for split, goals in self.splits.items()}

    @cached_property
    def goals(self) -> dict[str, Goal]:
        """Goal by task id."""
        return {goal.id: goal for goals in self.splits.values() for goal in goals}

    @cached_property
    def by_asin(self) -> dict[str, Product]:
        """Product by lower-cased asin, as actions name it."""
        return {product.asin.lower(): product for product in self.products}


def _task(goal: Goal, split: str) -> Task:
    product = goal.product
    meta = {"category": product.category, "query": product.query, "asin": product.asin, "n_options": len(goal.options)}
    return Task(goal.id, split, meta)


@cache
def embedded_shop() -> Shop:
    """The shop of the embedded catalogue: `train`, `val` and `demo` share no product."""
    items, instructions, split_of = catalogue.generate()
    attributes = {asin: entry["attributes"] for asin, entry in instructions.items()}
    products = parse_products(items, attributes, "embedded catalogue")
    goals = shuffled(synthetic_goals(products, instructions))
    splits = {
        split: tuple(goal for goal in goals if split_of[goal.product.asin] == split)
        for split in ("train", "val", "demo")
    }
    digest = hashlib.sha256(json.dumps([items, instructions, split_of]).encode()).hexdigest()
    return Shop(tuple(products), splits, catalogue.keywords, digest)


@cache
def shop_of(folder: Path, goals: str) -> Shop:
    """The shop of the user's own data, with `synthetic` or `human` goals: `val` is the first 500, `train` the rest.

    Raises:
        DataError: see `files.load`.
    """
    products, splits, digest = files.load(folder, goals)
    return Shop(tuple(products), splits, content_words, digest)
