"""Time and memory of WebShop's own search index; `python -m benchmarks.envs` prints them."""

import resource
import time
from collections.abc import Iterator

import numpy as np

from envs.webshop.bm25 import Index
from flwr_agent.seeds import rng

WORDS_PER_DOCUMENT, WORDS_PER_QUERY, VOCABULARY = 80, 6, 60_000


def texts(count: int, length: int, *purpose: object) -> Iterator[str]:
    """Random texts whose words follow Zipf's law."""
    words = np.array([f"w{i}x" for i in range(VOCABULARY)])
    weights = 1 / np.arange(1, VOCABULARY + 1)
    draw = rng("benchmark", *purpose)
    for start in range(0, count, 1_000):
        ids = draw.choice(VOCABULARY, (min(1_000, count - start), length), p=weights / weights.sum())
        yield from (" ".join(row) for row in words[ids])


def peak_mb() -> float:
    """Largest resident size of this process so far, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(num_products: int) -> tuple[float, float, float]:
    """CPU seconds of indexing, MB by which the peak resident size grows, CPU milliseconds a query; in a fresh process."""
    list(texts(1_000, WORDS_PER_DOCUMENT, "warm-up"))
    before, start = peak_mb(), time.process_time()
    index = Index.build(texts(num_products, WORDS_PER_DOCUMENT, "documents"))
    built, grown = time.process_time() - start, peak_mb() - before
    start = time.process_time()
    for _ in texts(num_products, WORDS_PER_DOCUMENT, "documents"):
        pass
    built -= time.process_time() - start
    queries = list(texts(300, WORDS_PER_QUERY, "queries"))
    start = time.process_time()
    for query in queries:
        index.search(query, 50)
    return built, grown, (time.process_time() - start) / len(queries) * 1e3
