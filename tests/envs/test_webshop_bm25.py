"""The search index against the formula computed by hand."""

import math

from hypothesis import given
from hypothesis import strategies as st

from envs.webshop.bm25 import STOP_WORDS, Index, analyse

TEXTS = ["red shoe red", "blue shoe for running", "the hat", "running running running shoes and hats"]


def reference(texts, query, *, k1, b):
    docs = [analyse(text) for text in texts]
    mean = sum(map(len, docs)) / len(docs)
    scores = []
    for doc in docs:
        total = 0.0
        for term in analyse(query):
            df, tf = sum(term in other for other in docs), doc.count(term)
            idf = math.log(1 + (len(docs) - df + 0.5) / (df + 0.5))
            total += idf * tf / (tf + k1 * (1 - b + b * len(doc) / mean)) if tf else 0.0
        scores.append(total)
    return scores


def test_analysis_is_lucenes():
    assert len(STOP_WORDS) == 33
    assert analyse("The Women's RUNNING shoes, 3.5 oz") == ["women", "run", "shoe", "3.5", "oz"]


@given(
    st.lists(st.sampled_from(TEXTS), min_size=1, max_size=12),
    st.lists(st.sampled_from(["red", "shoe", "running", "hats", "blue", "the", "green"]), max_size=6).map(" ".join),
    st.sampled_from([(0.9, 0.4), (1.2, 0.0), (0.3, 1.0)]),
    st.integers(1, 8),
)
def test_ranking_is_bm25_with_ties_by_position(texts, query, parameters, k):
    k1, b = parameters
    expected = reference(texts, query, k1=k1, b=b)
    index = Index.build(texts, k1=k1, b=b)
    scores = index.scores(query)
    assert all(math.isclose(a, b, rel_tol=1e-5) for a, b in zip(scores, expected, strict=True))
    order = sorted((i for i, score in enumerate(scores) if score), key=lambda i: (-scores[i], i))
    assert index.search(query, k) == order[:k]


def test_an_empty_index_and_an_unknown_word_find_nothing():
    assert Index.build([]).search("shoe", 5) == []
    assert Index.build(TEXTS).search("zebra the", 5) == []
