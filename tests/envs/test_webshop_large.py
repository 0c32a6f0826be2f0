"""Search over large catalogues, where tantivy is installed."""

import importlib.util
import sys

import pytest

from envs.webshop import large
from envs.webshop.bm25 import Index
from envs.webshop.shop import embedded_shop
from flwr_agent.errors import ConfigError

needs_tantivy = pytest.mark.skipif(importlib.util.find_spec("tantivy") is None, reason="needs the extra webshop-large")


@needs_tantivy
def test_it_ranks_as_the_numpy_index_does():
    shop = embedded_shop()
    texts = [product.document() for product in shop.products]
    ours, theirs = Index.build(texts, k1=1.2, b=0.75), large.LargeIndex(texts)
    for goal in list(shop.goals.values())[::200]:
        query = " ".join((*goal.attributes, goal.product.query))
        expected = ours.search(query, 50)
        found = theirs.search(query, 50)
        assert len(found) == len(set(found)) == 50
        assert len(set(found[:10]) & set(expected[:20])) >= 8


@needs_tantivy
@pytest.mark.parametrize("query", ["size: 8", "women's [x]", "red AND (", "-word +x", "a OR", '"', "", "the"])
def test_query_syntax_is_only_words(query):
    assert isinstance(large.LargeIndex(["red shoe size 8", "women x word"]).search(query, 5), list)


@needs_tantivy
def test_large_catalogues_use_it(monkeypatch):
    shop = embedded_shop()
    monkeypatch.setattr("envs.webshop.shop.MIN_PRODUCTS", 10)
    fresh = type(shop)(shop.products, shop.splits, shop.keywords, shop.digest)
    assert isinstance(fresh.index, large.LargeIndex)


def test_without_the_extra_a_large_catalogue_is_refused(monkeypatch):
    monkeypatch.setitem(sys.modules, "tantivy", None)
    with pytest.raises(ConfigError, match=r"flwr-agent\[webshop-large\]"):
        large.LargeIndex(["red shoe"])
