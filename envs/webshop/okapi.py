"""The search engine of the variants: BM25 over chosen product fields, as the package rank_bm25 computes it."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from envs.webshop.bm25 import Dialect
from envs.webshop.products import Product

NEGATIVE_IDF = 0.25
"""A term in more than half of the documents weighs this share of the mean idf."""


def _idf(total: int, df: np.ndarray) -> np.ndarray:
    idf = np.log(total - df + 0.5) - np.log(df + 0.5)
    return np.where(idf < 0, NEGATIVE_IDF * idf.mean() if len(idf) else 0.0, idf)


OKAPI = Dialect("okapi", re.compile(r"\b\w+\b"), str, _idf, lists_unrelated=True)
r"""Words as they are, `\b\w+\b` in lower case; every query with a word lists as many products as it may.

rank_bm25's scores are k1 + 1 times these, which changes no order.
"""


def document(product: Product, fields: Sequence[str]) -> str:
    """What an index over `fields` reads of a product: its title if those that it has say nothing.

    Products have `name`, `Title` (the same text) and `BulletPoints`; the published pools also name `description` and
    `features`, which no product has.
    """
    texts = {"name": product.title, "Title": product.title, "BulletPoints": " ".join(product.bullets)}
    return " ".join(texts[field] for field in fields if texts.get(field)) or product.title
