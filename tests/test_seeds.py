"""Published client choices and task seeds, and windows that never meet."""

import random
from itertools import product

import pytest

from flwr_agent.seeds import MAX_EPOCH_ROWS, choose_clients, client_seed, pick, row_seeds


def test_published_client_choices():
    assert [choose_clients(42, round_, 100, 2) for round_ in (1, 2, 3)] == [[14, 81], [4, 36], [52, 66]]


def test_a_choice_is_sorted_without_repetition_and_leaves_the_global_generator_alone():
    state = random.getstate()
    for round_ in range(1, 40):
        chosen = choose_clients(7, round_, 20, 6)
        assert chosen == sorted(set(chosen))
        assert len(chosen) == 6
    assert choose_clients(7, 3, 5, 5) == choose_clients(7, 3, 5, 9) == [0, 1, 2, 3, 4]
    assert random.getstate() == state


def test_a_client_s_data_seed_is_the_published_one():
    assert client_seed(42, 1, 14) == 156


def test_the_first_epoch_does_not_depend_on_the_number_of_epochs_and_no_seed_comes_twice():
    one, three = row_seeds(156, 8, 1), row_seeds(156, 8, 3)
    assert three[0] == one[0] == [156 * 100_000 + row for row in range(8)]
    assert len({seed for epoch in three for seed in epoch}) == 3 * 8


def test_windows_of_clients_and_rounds_do_not_meet():
    seeds = [client_seed(42, round_, client) for round_, client in product((1, 2), range(100))]
    windows = [{s for epoch in row_seeds(seed, MAX_EPOCH_ROWS // 3, 3) for s in epoch} for seed in seeds]
    assert sum(map(len, windows)) == len(set().union(*windows))


def test_more_rows_than_a_window_holds_are_refused():
    with pytest.raises(ValueError, match="50001 rows x 2 epochs exceed 100000"):
        row_seeds(1, 50_001, 2)


def test_a_seed_draws_the_same_task_everywhere():
    ids = [f"t{n}" for n in range(100)]
    assert [pick(seed, ids) for seed in (1, 2, 3)] == [f"t{random.Random(seed).randrange(100)}" for seed in (1, 2, 3)]
