"""Search over more products than the NumPy index is meant for, by tantivy (Rust); needs the extra `webshop-large`."""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Iterable
from typing import Any

from envs.webshop.bm25 import analyse
from flwr_agent.errors import ConfigError

MIN_PRODUCTS = 100_000
"""Catalogues above this size are searched by tantivy."""
EXTRA = "webshop-large"


class LargeIndex:
    """Same analysis as `bm25.Index`; BM25 with tantivy's own k1 = 1.2 and b = 0.75."""

    def __init__(self, texts: Iterable[str]):
        self._tantivy = _tantivy()
        builder = self._tantivy.SchemaBuilder()
        builder.add_text_field("terms", tokenizer_name="whitespace", index_option="freq")
        builder.add_unsigned_field("number", stored=True)
        self._schema = builder.build()
        index = self._tantivy.Index(self._schema)
        writer = index.writer(num_threads=1)
        for number, text in enumerate(texts):
            writer.add_document(self._tantivy.Document(terms=" ".join(analyse(text)), number=number))
        writer.commit()
        writer.wait_merging_threads()
        index.reload()
        self._searcher = index.searcher()

    def search(self, query: str, k: int) -> list[int]:
        """The `k` best documents; ties by document number."""
        tantivy = self._tantivy
        clauses = []
        for term, repeats in Counter(analyse(query)).items():
            clause = tantivy.Query.term_query(self._schema, "terms", term, "freq")
            clauses.append((tantivy.Occur.Should, tantivy.Query.boost_query(clause, float(repeats))))
        hits = self._searcher.search(tantivy.Query.boolean_query(clauses), limit=k, count=False).hits
        ranked = sorted((-score, self._searcher.doc(address)["number"][0]) for score, address in hits)
        return [number for _, number in ranked]


def _tantivy() -> Any:
    try:
        return importlib.import_module("tantivy")
    except ModuleNotFoundError as error:
        fix = f"more than {MIN_PRODUCTS:,} products need tantivy: pip install 'flwr-agent[{EXTRA}]'"
        raise ConfigError("env.data_path", "large catalogue", fix) from error
