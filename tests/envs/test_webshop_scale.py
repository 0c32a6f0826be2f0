"""A thousand and a hundred thousand products: fast searches, one index a machine, little memory a client."""

import multiprocessing
from concurrent.futures import ProcessPoolExecutor

import pytest

from benchmarks import shared_index, webshop_index

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def measured(num_products):
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as fresh:
        return fresh.submit(webshop_index.measure, num_products).result()


def test_a_search_among_1_000_products_takes_half_a_millisecond():
    assert min(measured(1_000)[2] for _ in range(3)) <= 0.5


def test_100_000_products_are_indexed_in_20_seconds_and_300_mb_and_searched_in_3_milliseconds():
    built, grown, per_query = measured(100_000)
    assert built < 20
    assert grown < 300
    assert per_query < 3


def test_eight_processes_build_one_index_of_100_000_products_and_map_it_at_50_mb_each():
    found, size_mb = shared_index.measure(100_000, 8)
    assert [builds for builds, *_ in found] == [1, 0, 0, 0, 0, 0, 0, 0]
    assert max(grown for builds, _, grown, _ in found if not builds) <= 50
    assert len({hits for *_, hits in found}) == 1
    assert size_mb < 100
