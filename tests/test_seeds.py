"""Every draw is a function of (seed, purpose, ...)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flwr_agent.seeds import MAX_EPOCH_ROWS, choose_clients, client_seed, pick, row_seeds, seed_for

sizes = st.integers(1, 60).flatmap(lambda n: st.tuples(st.just(n), st.integers(1, MAX_EPOCH_ROWS // n)))


@given(st.integers(0, 10**6), sizes)
def test_epochs_draw_rows_of_their_own_and_the_first_is_that_of_one_epoch(data_seed, size):
    num_rows, num_epochs = size
    table = row_seeds(data_seed, num_rows, num_epochs)
    assert [len(row) for row in table] == [num_rows] * num_epochs
    assert len({seed for row in table for seed in row}) == num_rows * num_epochs
    assert table[:1] == row_seeds(data_seed, num_rows, 1)


@given(sizes, st.integers(0, 10**6))
def test_no_two_clients_or_rounds_share_a_row_seed(size, base):
    seeds = [client_seed(base, round_, client) for round_ in (1, 2) for client in (0, 99)]
    tables = [{s for row in row_seeds(seed, *size) for s in row} for seed in seeds]
    assert len(set.union(*tables)) == sum(map(len, tables))


def test_more_rows_than_a_client_round_has_seeds_are_refused():
    with pytest.raises(ValueError, match="exceed 1000 row seeds"):
        row_seeds(1, 64, 16)


def test_clients_of_the_published_rounds():
    assert [choose_clients(42, r, 100, 2) for r in (1, 2, 3)] == [[14, 81], [4, 36], [52, 66]]
    assert choose_clients(42, 1, 3, 5) == [0, 1, 2]


def test_a_seed_says_its_purpose():
    assert seed_for(1, "rollout") != seed_for(1, "update")
    assert seed_for(1, 23) != seed_for(12, 3)
    assert pick(7, ["a", "b", "c"]) == pick(7, ["a", "b", "c"])
