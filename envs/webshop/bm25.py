"""A BM25 index in NumPy: Lucene's analysis and formula, with `k1` and `b` given at query time."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import Stemmer

_STOP_WORDS = (
    "a an and are as at be but by for if in into is it no not of on or such that the their then there these they this "
    "to was will with"
)
STOP_WORDS = frozenset(_STOP_WORDS.split())
"""Lucene's English stop words."""
BLOCK = 4_096
"""Documents that are counted together while an index is built."""
_WORD = re.compile(r"\w+(?:['’.]\w+)*")
_STEMMER = Stemmer.Stemmer("porter")


def analyse(text: str) -> list[str]:
    """Index terms of a text: lower-cased words without possessives and the 33 English stop words, Porter-stemmed.

    Example:
        >>> analyse("The women's running shoes")
        ['women', 'run', 'shoe']
    """
    return [term for word in _WORD.findall(text.lower()) if (term := _term(word))]


class _Rows(dict[str, int]):
    """Word -> row of its term in a vocabulary that grows by being asked; -1 for stop words."""

    def __init__(self) -> None:
        self.vocabulary: dict[str, int] = {}

    def __missing__(self, word: str) -> int:
        term = _term(word)
        self[word] = self.vocabulary.setdefault(term, len(self.vocabulary)) if term else -1
        return self[word]


class _Block(NamedTuple):
    """Postings of some consecutive documents, by document."""

    terms: np.ndarray
    documents: np.ndarray
    counts: np.ndarray
    lengths: np.ndarray

    @classmethod
    def of(cls, texts: Sequence[str], rows: Mapping[str, int], first: int) -> _Block:
        words = [np.array([rows[word] for word in _WORD.findall(text.lower())], np.int64) for text in texts]
        places = np.repeat(np.arange(len(words)), [len(found) for found in words])
        terms = np.concatenate([*words, np.empty(0, np.int64)])
        places, terms = places[terms >= 0], terms[terms >= 0]
        keys, counts = np.unique(places << 32 | terms, return_counts=True)
        parts = keys & 0xFFFFFFFF, (keys >> 32) + first, counts, np.bincount(places, minlength=len(words))
        return cls(*(part.astype(np.int32) for part in parts))


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
        rows, remaining, blocks = _Rows(), iter(texts), [_Block.of([], {}, 0)]
        while block := list(itertools.islice(remaining, BLOCK)):
            blocks.append(_Block.of(block, rows, (len(blocks) - 1) * BLOCK))
        terms, documents, counts, lengths = (np.concatenate(parts) for parts in zip(*blocks, strict=True))
        del blocks  # they are a third of the peak
        order = np.argsort(terms, kind="stable")
        starts = [0, *np.cumsum(np.bincount(terms, minlength=len(rows.vocabulary))).tolist()]
        return cls(rows.vocabulary, starts, documents[order], counts[order], lengths)

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
