"""A BM25 index in NumPy, in the dialect of an engine; the standard shop searches as Lucene does."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
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
_STEMMER = Stemmer.Stemmer("porter")


@dataclass(frozen=True, slots=True)
class Dialect:
    """How an engine reads a text, weighs a word and ends a list."""

    name: str
    words: re.Pattern[str]
    """Finds the words of a lower-cased text."""
    term: Callable[[str], str]
    """Word -> index term; empty for a word that is not indexed."""
    idf: Callable[[int, np.ndarray], np.ndarray]
    """(documents, documents that hold each term) -> weight of each term."""
    lists_unrelated: bool
    """Whether documents that share no term with the query fill the list up."""


def analyse(text: str) -> list[str]:
    """Index terms of a text: lower-cased words without possessives and the 33 English stop words, Porter-stemmed.

    Example:
        >>> analyse("The women's running shoes")
        ['women', 'run', 'shoe']
    """
    return _terms(LUCENE, text)


def _terms(dialect: Dialect, text: str) -> list[str]:
    return [term for word in dialect.words.findall(text.lower()) if (term := dialect.term(word))]


def _lucene_term(word: str) -> str:
    word = word.removesuffix("'s").removesuffix("’s")
    return "" if word in STOP_WORDS else _STEMMER.stemWord(word)


def _lucene_idf(total: int, df: np.ndarray) -> np.ndarray:
    return np.log1p((total - df + 0.5) / (df + 0.5))


LUCENE = Dialect("lucene", re.compile(r"\w+(?:['’.]\w+)*"), _lucene_term, _lucene_idf, lists_unrelated=False)
"""Lucene's English analysis and its BM25 (Robertson et al., 1994, with an idf that is never negative)."""


class _Rows(dict[str, int]):
    """Word -> row of its term in a vocabulary that grows by being asked; -1 for words that are not indexed."""

    def __init__(self, term: Callable[[str], str]) -> None:
        self.vocabulary: dict[str, int] = {}
        self._term = term

    def __missing__(self, word: str) -> int:
        term = self._term(word)
        self[word] = self.vocabulary.setdefault(term, len(self.vocabulary)) if term else -1
        return self[word]


class _Block(NamedTuple):
    """Postings of some consecutive documents, by document."""

    terms: np.ndarray
    documents: np.ndarray
    counts: np.ndarray
    lengths: np.ndarray

    @classmethod
    def of(cls, texts: Sequence[str], words: re.Pattern[str], rows: Mapping[str, int], first: int) -> _Block:
        found = [np.array([rows[word] for word in words.findall(text.lower())], np.int64) for text in texts]
        places = np.repeat(np.arange(len(found)), [len(row) for row in found])
        terms = np.concatenate([*found, np.empty(0, np.int64)])
        places, terms = places[terms >= 0], terms[terms >= 0]
        keys, counts = np.unique(places << 32 | terms, return_counts=True)
        parts = keys & 0xFFFFFFFF, (keys >> 32) + first, counts, np.bincount(places, minlength=len(found))
        return cls(*(part.astype(np.int32) for part in parts))


@dataclass(frozen=True, slots=True)
class Index:
    """Postings sorted by (term, document), in compressed rows, each with what it adds to a score.

    Example:
        >>> Index.build(["red shoe", "blue shoe", "red hat"]).search("red shoes", 2)
        [0, 1]
    """

    dialect: Dialect
    num_documents: int
    vocabulary: Mapping[str, int]
    """Term -> row."""
    starts: np.ndarray
    """[terms + 1] where each row begins."""
    documents: np.ndarray
    """[postings] document of each posting, ascending within a row."""
    impacts: np.ndarray
    """[postings] idf * tf / (tf + k1 (1 - b + b length / mean length)); fp32."""

    @classmethod
    def build(cls, texts: Iterable[str], *, dialect: Dialect = LUCENE, k1: float = 0.9, b: float = 0.4) -> Index:
        """Analyse and index `texts`; document numbers are their positions."""
        rows, remaining, blocks = _Rows(dialect.term), iter(texts), [_Block.of([], dialect.words, {}, 0)]
        while block := list(itertools.islice(remaining, BLOCK)):
            blocks.append(_Block.of(block, dialect.words, rows, (len(blocks) - 1) * BLOCK))
        terms, documents, counts, lengths = (np.concatenate(parts) for parts in zip(*blocks, strict=True))
        del blocks  # they are a third of the peak
        order = np.argsort(terms, kind="stable")
        df = np.bincount(terms, minlength=len(rows.vocabulary))
        documents, tf = documents[order], counts[order].astype(np.float32)
        mean = max(lengths.sum(), 1) / max(len(lengths), 1)
        norms = (k1 * (1 - b + b / mean * lengths)).astype(np.float32)
        impacts = np.repeat(dialect.idf(len(lengths), df).astype(np.float32), df) * (tf / (tf + norms[documents]))
        starts = np.concatenate([[0], np.cumsum(df)])
        return cls(dialect, len(lengths), rows.vocabulary, starts, documents, impacts)

    def search(self, query: str, k: int) -> list[int]:
        """The `k` best documents, ties by document number; none for a query without terms."""
        if not _terms(self.dialect, query):
            return []
        scores = self.scores(query)
        hits = np.arange(self.num_documents) if self.dialect.lists_unrelated else np.flatnonzero(scores)
        values = scores[hits]
        if len(hits) > k:
            keep = values >= np.partition(values, -k)[-k]
            hits, values = hits[keep], values[keep]
        return hits[np.argsort(-values, kind="stable")[:k]].tolist()

    def scores(self, query: str) -> np.ndarray:
        """[documents] the sum of each document's impacts over the query's terms."""
        scores = np.zeros(self.num_documents, np.float32)
        for term, repeats in Counter(_terms(self.dialect, query)).items():
            row = self.vocabulary.get(term)
            if row is not None:
                span = slice(self.starts[row], self.starts[row + 1])
                scores[self.documents[span]] += repeats * self.impacts[span]
        return scores
