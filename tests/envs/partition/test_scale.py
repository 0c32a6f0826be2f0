"""The published scale: 100 clients, and as many tasks as the two environments of the publication have."""

import multiprocessing
from concurrent.futures import ProcessPoolExecutor

import pytest

from benchmarks.partition import KNOBS, POOLS, measure


@pytest.mark.slow
@pytest.mark.parametrize("name", POOLS)
@pytest.mark.parametrize("strategy", KNOBS)
def test_a_shard_takes_a_fifth_of_a_second_and_all_of_them_five(name, strategy, tmp_path):
    spawn = multiprocessing.get_context("spawn")
    runs = []
    for _ in range(3):
        with ProcessPoolExecutor(1, mp_context=spawn) as fresh:
            runs.append(fresh.submit(measure, strategy, POOLS[name], tmp_path).result())
    one, everyone, peak_mb = map(min, zip(*runs, strict=True))
    assert one <= 0.2
    assert everyone <= 5
    assert peak_mb < 300
