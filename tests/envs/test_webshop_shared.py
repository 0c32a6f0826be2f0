"""Large indexes are built once per machine and mapped by all that ask."""

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace

import pytest

from envs.webshop import shared
from envs.webshop.bm25 import LUCENE, Index
from envs.webshop.shop import embedded_shop

TEXTS = [f"soft {colour} {thing}" for colour in ("red", "blue") for thing in ("shoe", "hat", "lamp")] * 50


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(shared, "FOLDER", tmp_path / "cache")
    return tmp_path / "cache"


def open_index(folder) -> tuple[int, list[int]]:
    """(builds, hits) of one process."""
    shared.FOLDER = folder
    builds = []

    def build() -> Index:
        builds.append(1)
        return Index.build(TEXTS)

    hits = shared.mapped("k", build, LUCENE).search("red hats", 5)
    return len(builds), hits


def test_processes_that_ask_together_build_one_index(tmp_path):
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(2, mp_context=spawn) as pool:
        results = list(pool.map(open_index, [tmp_path] * 4))
    assert sum(builds for builds, _ in results) == 1
    assert {tuple(hits) for _, hits in results} == {tuple(Index.build(TEXTS).search("red hats", 5))}


def test_a_mapped_index_ranks_as_the_one_in_memory(folder):
    ours = Index.build(TEXTS)
    theirs = shared.mapped("k", lambda: ours, LUCENE)
    for query in ("red", "soft hats", "blue lamp lamp", "nothing", ""):
        assert theirs.search(query, 20) == ours.search(query, 20)
    assert theirs.vocabulary == ours.vocabulary
    assert not theirs.documents.flags.writeable


def test_an_index_left_unfinished_is_built_anew(folder):
    (folder / "k.tmp").mkdir(parents=True)
    (folder / "k.tmp" / "starts.npy").write_text("torn")

    def fail() -> Index:
        raise OSError("full")

    with pytest.raises(OSError, match="full"):
        shared.mapped("k", fail, LUCENE)
    assert shared.mapped("k", lambda: Index.build(TEXTS), LUCENE).search("red", 1) == [0]


def test_large_catalogues_are_mapped_and_small_ones_are_not(folder, monkeypatch):
    embedded = replace(embedded_shop())
    assert embedded.index.documents.flags.writeable
    assert not folder.exists()
    monkeypatch.setattr("envs.webshop.shop.MIN_SHARED", 999)
    large = replace(embedded_shop())
    assert large.index.search("soft red jacket", 50) == embedded.index.search("soft red jacket", 50)
    assert len(list(folder.glob("*/facts.json"))) == 1
