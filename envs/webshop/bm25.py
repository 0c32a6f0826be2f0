"""A BM25 index in NumPy: Lucene's analysis and formula, with `k1` and `b` given at query time."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

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
    words = (word.removesuffix("'s").removesuffix("’s") for word in _WORD.findall(text.lower()))
    return _STEMMER.stemWords([word for word in words if word not in STOP_WORDS])


@dataclass(frozen=True, slots=True)
class Index:
    """Postings sorted by (term, document), in compressed rows.

    Example:
        >>> Index.build(["red shoe", "blue shoe", "red hat"]).search("red shoes", 2)
        [0, 1]
    """

    vocabulary: dict[str, int]
    """Term -> row."""
    starts: np.ndarray
    """[terms + 1] where each row begins."""
    documents: np.ndarray
    """[postings] document of each posting, ascending within a row."""
    counts: np.ndarray
    """[postings] occurrences of the term in the document."""
    lengths: np.ndarray
    """[documents] terms per document, repeats included."""

    @classmethod
    def build(cls, texts: Iterable[str]) -> Index:
        """Analyse and index `texts`; document numbers are their positions."""
        vocabulary: dict[str, int] = {}
        terms: list[np.ndarray] = []
        for text in texts:
            ids = [vocabulary.setdefault(term, len(vocabulary)) for term in analyse(text)]
            terms.append(np.array(ids, dtype=np.int64))
        lengths = np.array([len(ids) for ids in terms], dtype=np.int32)
        documents = np.repeat(np.arange(len(terms)), lengths)
        keys = np.concatenate([*terms, np.empty(0, np.int64)]) * max(len(terms), 1) + documents
        keys, counts = np.unique(keys, return_counts=True)
        rows, documents = np.divmod(keys, max(len(terms), 1))
        starts = np.searchsorted(rows, np.arange(len(vocabulary) + 1))
        return cls(vocabulary, starts, documents.astype(np.int32), counts.astype(np.int32), lengths)

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
        """BM25 of every document: sum over terms of idf * tf / (tf + k1 (1 - b + b length / mean length))."""
        total = len(self.lengths)
        scores = np.zeros(total)
        mean = max(self.lengths.sum(), 1) / max(total, 1)
        norms = k1 * (1 - b + b / mean * self.lengths)
        for term, repeats in Counter(analyse(query)).items():
            row = self.vocabulary.get(term)
            if row is None:
                continue
            documents = self.documents[self.starts[row] : self.starts[row + 1]]
            tf = self.counts[self.starts[row] : self.starts[row + 1]]
            idf = math.log1p((total - len(documents) + 0.5) / (len(documents) + 0.5))
            scores[documents] += repeats * idf * tf / (tf + norms[documents])
        return scores
