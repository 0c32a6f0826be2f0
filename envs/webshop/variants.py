"""One client's shop: which products are on sale, and how a search ranks them."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from envs.base import Variant
from envs.partition.catalog import catalog
from envs.webshop.bm25 import Index
from envs.webshop.large import MIN_PRODUCTS
from envs.webshop.lookalikes import clones
from envs.webshop.okapi import OKAPI, document
from envs.webshop.shop import Shop
from flwr_agent.errors import ConfigError

Params = Mapping[str, Any]
Search = Callable[[str, int, random.Random], list[int]]
"""(query, k, draw) -> positions of at most k products, best first; `draw` is the episode's own generator, which a
world of chance advances."""


@dataclass(frozen=True, kw_only=True, slots=True)
class World:
    """A shop as one client finds it."""

    shop: Shop
    search: Search
    seed: int | None = None
    """Of the draws that searches make; None where they make none."""
    on_sale: frozenset[str] | None = None
    """Asins that results may name; None for all."""


def world_of(shop: Shop, variant: Variant | None, *, goals: str) -> World:
    """The world that `variant` makes of `shop`, whose goals are `synthetic` or `human`.

    Raises:
        ConfigError: webshop has no such variant, or not with this catalogue or these goals.
    """
    if variant is None:
        return World(shop=shop, search=lambda query, k, _draw: shop.index.search(query, k))
    if variant.name not in WORLDS:
        raise ConfigError("partition.strategy", variant.name, "webshop has no such variant", allowed=WORLDS)
    if variant.name != "catalog_split" and len(shop.products) > MIN_PRODUCTS:
        fix = f"searches in memory, which is for at most {MIN_PRODUCTS:,} products; use a smaller env.data_path"
        raise ConfigError("partition.strategy", variant.name, fix)
    if variant.name == "lookalike" and goals == "human":
        raise ConfigError("partition.strategy", variant.name, "cannot be combined with env.goals=human; use synthetic")
    return WORLDS[variant.name](shop, variant.params)


def _catalog_split(shop: Shop, params: Params) -> World:
    """Results without what this client's shop lacks; the index stays that of all products."""
    on_sale = catalog((product.asin for product in shop.products), params)
    sold = [product.asin in on_sale for product in shop.products]

    def search(query: str, k: int, _draw: random.Random) -> list[int]:
        return [at for at in shop.index.search(query, k) if sold[at]]

    return World(shop=shop, search=search, on_sale=on_sale)


def _okapi(shop: Shop, params: Params) -> World:
    """Another engine, other fields or other parameters."""
    return World(shop=shop, search=lambda query, k, _draw: _index(shop, params).search(query, k))


def _lookalike(shop: Shop, params: Params) -> World:
    return _okapi(_with_clones(shop, params["kind"], params["clone_seed"]), params)


def _rank_wrapper(shop: Shop, params: Params) -> World:
    """The same engine for all, whose results arrive shuffled, upside down or half the time as anything else."""
    kind = params["kind"]

    def search(query: str, k: int, draw: random.Random) -> list[int]:
        if kind == "partial" and draw.random() < params["share"]:
            return draw.sample(range(len(shop.products)), min(k, len(shop.products)))
        hits = _index(shop, params).search(query, max(params["top"], k) if kind == "shuffle" else k)
        if kind == "shuffle":
            draw.shuffle(hits)
        return hits[::-1] if kind == "invert" else hits[:k]

    is_chancy = kind in ("shuffle", "partial")
    return World(shop=shop, search=search, seed=params["rank_seed"] if is_chancy else None)


WORLDS: Mapping[str, Callable[[Shop, Params], World]] = {
    "catalog_split": _catalog_split,
    "bm25_field_subset": _okapi,
    "bm25_reweight": _okapi,
    "lookalike": _lookalike,
    "rank_wrapper": _rank_wrapper,
}
"""Variant -> what it makes of a shop and the variant's parameters."""


def _index(shop: Shop, params: Params) -> Index:
    return _cached_index(shop, tuple(params["fields"]), params["k1"], params["b"])


@cache
def _cached_index(shop: Shop, fields: tuple[str, ...], k1: float, b: float) -> Index:
    texts = (document(product, fields) for product in shop.products)
    return shop.indexed(texts, fields=" ".join(fields), dialect=OKAPI, k1=k1, b=b)


@cache
def _with_clones(shop: Shop, kind: str, seed: int) -> Shop:
    bait = tuple(clones(shop.products, kind, seed))
    return replace(shop, products=shop.products + bait, digest=f"{shop.digest} {kind} {seed}")
