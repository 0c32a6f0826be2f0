import torch
from hypothesis import given
from hypothesis import strategies as st
from policies import random_rows

from flwr_agent.rl.batch import by_length, chunks, minibatches, right_pad, to_batch

TWELVE = random_rows(12)


@given(st.integers(0, 60), st.integers(0, 70), st.integers(0, 2**62))
def test_minibatches_hold_every_row_once_and_are_full_but_the_last(num_rows, size, seed):
    steps = minibatches(num_rows, size, seed=seed)
    assert sorted(i for step in steps for i in step) == list(range(num_rows))
    assert all(len(step) == (size or num_rows) for step in steps[:-1])
    assert all(steps)
    assert steps == minibatches(num_rows, size, seed=seed)


def test_minibatches_of_another_epoch_are_cut_anew():
    assert minibatches(20, 5, seed=1) != minibatches(20, 5, seed=2)


def test_minibatches_leave_the_global_generator_alone():
    before = torch.get_rng_state()
    minibatches(20, 5, seed=1)
    assert torch.equal(torch.get_rng_state(), before)


@given(st.permutations(range(12)), st.integers(1, 15))
def test_chunks_hold_every_row_once_sorted_by_length_whatever_their_order(indices, size):
    rows = TWELVE
    found = chunks(by_length(indices, rows), size)
    lengths = [len(rows[i].prompt_ids) + len(rows[i].response_ids) for chunk in found for i in chunk]
    assert lengths == sorted(lengths)
    assert sorted(i for chunk in found for i in chunk) == list(range(12))
    assert max(map(len, found)) <= size
    assert found == chunks(by_length(range(12), rows), size)


def test_a_batch_is_padded_to_its_own_longest_rows():
    rows = random_rows(5)
    batch = to_batch(rows, pad_id=9, num_tokens=17, device="cpu")
    for i, row in enumerate(rows):
        prompt, response = len(row.prompt_ids), len(row.response_ids)
        assert batch["prompt_ids"][i].tolist() == [9] * (batch["prompt_ids"].size(1) - prompt) + row.prompt_ids
        assert batch["completion_ids"][i].tolist() == row.response_ids + [9] * (
            batch["completion_ids"].size(1) - response
        )
        assert batch["prompt_mask"][i].sum() == prompt
        assert batch["completion_mask"][i].sum() == response
        assert batch["tool_mask"][i].sum() == row.num_tokens
        assert torch.equal(batch["advantages"][i, :response], torch.tensor(row.advantages))
    assert batch["num_items_in_batch"] == 17
    assert batch["prompt_ids"].size(1) == max(len(row.prompt_ids) for row in rows)


def test_right_padding_keeps_the_numbers_kind():
    assert right_pad([[1], [2, 3]], 7).tolist() == [[1, 7], [2, 3]]
    assert right_pad([torch.ones(1, dtype=torch.float64)], 0).dtype == torch.float64
