"""A BM25 index in NumPy: Lucene's analysis and formula, with `k1` and `b` given at query time."""

from __future__ import annotations

import re
from array import array
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
import Stemmer

_STOP_WORDS = (
    "a an and are as at be but by for if in into is it no not of on or such that the their then there these they this "
    "to was will with"
)
STOP_WORDS = frozenset(_STOP_WORDS.split())
"""Lucene\'s English stop words."""
_WORD = re.compile(r"\w+(?:['’.]\w+)*")
_STEMMER = Stemmer.Stemmer("porter")


def analyse(text: str) -> list[str]:
    """Index terms of a text: lower-cased words without possessives and the 33 English stop words, Porter-stemmed.

    Example:
        >>> analyse("The women's running shoes")
        ['women', 'run', 'shoe']
    """
    return [term for word in _WORD.findall(text.lower()) if (term := _term(word))]


@lru_cache(maxsize=1 << 16)
def _term(word: str) -> str:
    word = word.removesuffix("'s").removesuffix("’s")
    return "" if word in STOP_WORDS else _STEMMER.stemWord(word)


@dataclass(frozen=True, slots=True)
class Index:
    """Postings sorted by (term, document), in compressed rows.

    Example:
        >>> Index.build(["red shoe", "blue shoe", "red hat"]).search("red shoes", 2)
        [0, 1]
    """

    vocabulary: dict[str, int]
    """Term -> row."""
    starts: list[int]
    """[terms + 1] where each row begins."""
    documents: np.ndarray
    """[postings] document of each posting, ascending within a row."""
    counts: np.ndarray
    """[postings] occurrences of the term in the document."""
    lengths: np.ndarray
    """[documents] terms per document, repeats included."""
    cached: dict[tuple[float, float], np.ndarray] = field(default_factory=dict, repr=False, compare=False)
    """(k1, b) -> impact of each posting."""

    @classmethod
    def build(cls, texts: Iterable[str]) -> Index:
        """Analyse and index `texts`; document numbers are their positions."""
        vocabulary: dict[str, int] = {}
        terms, counts, sizes, lengths = (array("i") for _ in range(4))
        for text in texts:
            found = Counter(analyse(text))
            terms.extend(vocabulary.setdefault(term, len(vocabulary)) for term in found)
            counts.extend(found.values())
            sizes.append(len(found))
            lengths.append(found.total())
        rows = np.array(terms, np.int32)
        order = np.argsort(rows, kind="stable")
        documents = np.repeat(np.arange(len(sizes), dtype=np.int32), np.array(sizes, np.int32))
        starts = [0, *np.cumsum(np.bincount(rows, minlength=len(vocabulary))).tolist()]
        return cls(vocabulary, starts, documents[order], np.array(counts, np.int32)[order], np.array(lengths, np.int32))

    def search(self, query: str, k: int, *, k1: float = 0.9, b: float = 0.4) -> list[int]:
        """The `k` best documents by BM25 as Lucene computes it (Robertson et al., 1994); ties by document number.

        Documents that share no term with the query are never returned.
        """
        scores = self.scores(query, k1=k1, b=b)
        hits = np.flatnonzero(scores)
        values = scores[hits]
        if len(hits) > k:
            keep = values >= np.partition(values, -k)[-k]
            hits, values = hits[keep], values[keep]
        return hits[np.argsort(-values, kind="stable")[:k]].tolist()

    def scores(self, query: str, *, k1: float, b: float) -> np.ndarray:
        """[documents] BM25 of every document: the sum of its impacts over the query's terms."""
        impacts = self._impacts(k1, b)
        scores = np.zeros(len(self.lengths), np.float32)
        for term, repeats in Counter(analyse(query)).items():
            row = self.vocabulary.get(term)
            if row is not None:
                span = slice(self.starts[row], self.starts[row + 1])
                scores[self.documents[span]] += repeats * impacts[span]
        return scores

    def _impacts(self, k1: float, b: float) -> np.ndarray:
        """[postings] idf * tf / (tf + k1 (1 - b + b length / mean length)); kept for the next query."""
        if (k1, b) not in self.cached:
            total, df = len(self.lengths), np.diff(self.starts)
            idf = np.log1p((total - df + 0.5) / (df + 0.5)).astype(np.float32)
            mean = max(self.lengths.sum(), 1) / max(total, 1)
            norms = (k1 * (1 - b + b / mean * self.lengths)).astype(np.float32)
            tf = self.counts.astype(np.float32)
            self.cached[k1, b] = np.repeat(idf, df) * (tf / (tf + norms[self.documents]))
        return self.cached[k1, b]
