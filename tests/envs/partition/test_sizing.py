import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from envs.partition.sizing import assign_with_overlap, beta_sizes, weighted_draw

SIZES_AT_1 = [839, 129, 164, 234, 825, 1000, 903, 1000, 1000, 153, 449, 912]
OFFSETS_OF_CLIENT_0 = [3, 7, 10, 18, 24]


def test_published_sizes_at_concentration_1():
    sizes = beta_sizes(100, 100, 500, 1000, 1, np.random.default_rng(42))
    assert sizes[:12].tolist() == SIZES_AT_1
    assert (sizes.min(), sizes.max(), sizes.sum()) == (123, 1000, 50_000)
    assert sizes.var() == pytest.approx(116_031.18, abs=0.005)


@pytest.mark.parametrize(("concentration", "variance"), [(1, 0.14933), (256, 0.00102)])
def test_published_variances_of_the_easy_share(concentration, variance):
    shares = beta_sizes(100, 0, 50, 100, concentration, np.random.default_rng(42)) / 100
    assert shares.mean() == pytest.approx(0.5, abs=1e-12)
    assert shares.var() == pytest.approx(variance, abs=5e-6)


def test_published_assignment_at_concentration_1():
    rng = np.random.default_rng(42)
    sizes = beta_sizes(100, 100, 500, 1000, 1, rng)
    held = assign_with_overlap(6410, sizes, rng)
    assert np.flatnonzero(held[0])[:5].tolist() == OFFSETS_OF_CLIENT_0
    assert held.sum(axis=1).tolist() == sizes.tolist()
    assert set(held.sum(axis=0).tolist()) == {7, 8}


@given(
    st.integers(1, 60),
    st.lists(st.integers(0, 200), min_size=3, max_size=3, unique=True).map(sorted),
    st.floats(1e-3, 1e4),
    st.integers(0, 2**32),
)
def test_sizes_stay_in_bounds_and_sum_exactly(num_clients, bounds, concentration, seed):
    low, mean, high = bounds
    sizes = beta_sizes(num_clients, low, mean, high, concentration, np.random.default_rng(seed))
    assert sizes.sum() == num_clients * mean
    assert low <= sizes.min() <= sizes.max() <= high


@given(st.integers(1, 40), st.data(), st.integers(0, 2**32))
def test_dealt_sizes_are_exact_and_every_item_is_dealt_if_there_is_room(num_items, data, seed):
    sizes = np.array(data.draw(st.lists(st.integers(0, num_items), min_size=1, max_size=12)))
    held = assign_with_overlap(num_items, sizes, np.random.default_rng(seed))
    assert held.sum(axis=1).tolist() == sizes.tolist()
    assert held.any(axis=0).all() or sizes.sum() < num_items


@pytest.mark.parametrize("concentration", [1, 256])
@pytest.mark.parametrize("seed", [42, 1])
def test_every_item_is_dealt_evenly_but_for_the_copies_that_full_clients_cost(concentration, seed):
    rng = np.random.default_rng(seed)
    sizes = beta_sizes(100, 100, 500, 1000, concentration, rng)
    copies = assign_with_overlap(6410, sizes, rng).sum(axis=0)
    assert np.count_nonzero(~np.isin(copies, [7, 8])) <= 2
    assert 6 <= copies.min() <= copies.max() <= 9


@given(st.lists(st.integers(0, 9), min_size=1, max_size=30).filter(any), st.data(), st.integers(0, 2**32))
def test_the_weighted_draw_is_numpys_own_draw_for_draw(weights, data, seed):
    chances = np.array(weights) / sum(weights)
    count = data.draw(st.integers(1, int(np.count_nonzero(chances))))
    ours, numpys = np.random.default_rng(seed), np.random.default_rng(seed)
    expected = numpys.choice(len(chances), count, replace=False, p=chances).tolist()
    assert weighted_draw(chances, count, ours).tolist() == expected
    assert ours.bit_generator.state == numpys.bit_generator.state
