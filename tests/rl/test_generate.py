"""The generator against Hugging Face's own loop, and the law that an answer belongs to its request alone."""

import random
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from policies import chat, policy

from flwr_agent.rl.generate import GREEDY, Completion, Request, TransformersGenerator, left_pad, sample
from flwr_agent.seeds import rng

VOCABULARY = len(chat().tokenizer)
ROUNDING = 1e-5
"""A forward pass of another shape adds in another order."""


@pytest.fixture(scope="module")
def model():
    return policy(seed=1)


def requests(count: int, *, temperature: float = 1.0, max_new_tokens: int = 12) -> list[Request]:
    """Prompts of 1 to 30 tokens."""
    draw = rng("requests")
    prompts = [draw.integers(4, VOCABULARY, draw.integers(1, 31)).tolist() for _ in range(count)]
    return [Request(i, prompt, 1000 + i, max_new_tokens, temperature) for i, prompt in enumerate(prompts)]


def answers(model, wanted: list[Request], *, eos: list[int] | None = None, max_batch: int = 512) -> list[Completion]:
    generator = TransformersGenerator(model, eos_ids=eos or [3], pad_id=0, max_batch=max_batch)
    for request in wanted:
        generator.submit(request)
    return generator.collect()


def often(found: list[Completion]) -> int:
    """A token that ends many answers somewhere in the middle."""
    return max(range(VOCABULARY), key=lambda token: sum(token in c.ids[1:-1] for c in found))


def assert_alike(found: list[Completion], expected: list[Completion]) -> None:
    assert [(c.key, c.ids) for c in found] == [(c.key, c.ids) for c in expected]
    for one, other in zip(found, expected, strict=True):
        assert one.logprobs == pytest.approx(other.logprobs, abs=ROUNDING)


def test_greedy_is_hugging_faces_generate(model):
    wanted = requests(12, temperature=GREEDY)
    eos = often(answers(model, wanted))
    ids, mask = left_pad([r.prompt_ids for r in wanted], 0)
    theirs = model.generate(
        ids, attention_mask=mask, do_sample=False, max_new_tokens=12, eos_token_id=[3, eos], pad_token_id=0
    )[:, ids.size(1) :].tolist()
    ours = answers(model, wanted, eos=[eos, 3])
    assert len({len(c.ids) for c in ours}) > 1
    for one, row in zip(ours, theirs, strict=True):
        assert row == one.ids + [0] * (len(row) - len(one.ids))


@pytest.mark.parametrize(("temperature", "measured_at"), [(1.0, 1.0), (0.4, 0.4), (GREEDY, 1.0)])
def test_log_probs_are_those_of_a_forward_over_prompt_and_answer(model, temperature, measured_at):
    wanted = requests(10, temperature=temperature)
    for request, found in zip(wanted, answers(model, wanted), strict=True):
        with torch.no_grad():
            logits = model(torch.tensor([request.prompt_ids + found.ids])).logits[0, len(request.prompt_ids) - 1 : -1]
        expected = (logits / measured_at).log_softmax(-1).gather(1, torch.tensor(found.ids)[:, None])[:, 0]
        assert found.logprobs == pytest.approx(expected.tolist(), abs=ROUNDING)


def test_an_answer_depends_on_its_request_and_not_on_its_company(model):
    wanted = [
        replace(r, temperature=(GREEDY, 0.4, 1.0)[i % 3], max_new_tokens=3 + i % 7) for i, r in enumerate(requests(24))
    ]
    together = answers(model, wanted)
    assert_alike([answers(model, [request])[0] for request in wanted], together)
    assert_alike(answers(model, wanted[::-1])[::-1], together)
    assert_alike(answers(model, wanted, max_batch=5), together)


def test_answers_come_in_the_order_of_submission_and_once(model):
    generator = TransformersGenerator(model, eos_ids=[3], pad_id=0, max_batch=2)
    for request in requests(5, max_new_tokens=2)[::-1]:
        generator.submit(request)
    assert [c.key for c in generator.collect()] == [4, 3, 2, 1, 0]
    assert generator.collect() == []


def test_an_answer_ends_at_an_end_token_or_at_its_limit(model):
    wanted = [replace(r, max_new_tokens=1 + i % 12) for i, r in enumerate(requests(40))]
    eos = [3, often(answers(model, wanted))]
    found = answers(model, wanted, eos=eos)
    for request, one in zip(wanted, found, strict=True):
        assert not set(one.ids[:-1]) & set(eos)
        assert one.ids[-1] in eos or len(one.ids) == request.max_new_tokens
        assert 1 <= len(one.ids) == len(one.logprobs) <= request.max_new_tokens
    assert any(one.ids[-1] in eos for one in found)
    assert any(one.ids[-1] not in eos for one in found)


def test_an_end_token_cuts_an_answer_and_changes_nothing_before_it(model):
    wanted = requests(20)
    free = answers(model, wanted)
    eos = often(free)
    for one, other in zip(answers(model, wanted, eos=[3, eos]), free, strict=True):
        assert one.ids == other.ids[: other.ids.index(eos) + 1 if eos in other.ids else None]


def test_siblings_differ_in_their_seed_and_so_in_their_answers(model):
    request = requests(1)[0]
    siblings = [replace(request, seed=seed) for seed in range(16)]
    found = answers(model, siblings)
    assert len({tuple(c.ids) for c in found}) == 16
    assert found == answers(model, siblings)


def test_no_global_generator_is_touched_and_the_mode_is_restored(model):
    states = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].copy()  # noqa: NPY002
    model.train()
    answers(model, requests(3))
    assert model.training
    assert torch.equal(torch.get_rng_state(), states[0])
    assert random.getstate() == states[1]
    assert np.array_equal(np.random.get_state()[1], states[2])  # noqa: NPY002


def test_a_failed_batch_leaves_nothing_behind(model):
    generator = TransformersGenerator(model, eos_ids=[3], pad_id=0)
    model.train()
    generator.submit(Request(0, [VOCABULARY + 5], 1, 3, 1.0))
    with pytest.raises(IndexError):
        generator.collect()
    assert model.training
    generator.submit(requests(1)[0])
    assert [c.key for c in generator.collect()] == [0]


CHANCES = np.array([0.02, 0.3, 0.0, 0.08, 0.25, 0.05, 0.2, 0.1])
CHI_SQUARE_999 = 22.46
"""Quantile at 6 degrees of freedom: seven outcomes are possible."""


@pytest.mark.parametrize("temperature", [1.0, 0.4, 2.5])
def test_sampling_follows_the_distribution(temperature):
    expected = CHANCES ** (1 / temperature)
    expected /= expected.sum()
    draws = torch.from_numpy(rng("chi-square", temperature).random(20_000))
    tokens, logprobs = sampled(CHANCES, temperature, draws)
    counts = np.bincount(tokens, minlength=len(CHANCES))
    possible = expected > 0
    assert counts[~possible].sum() == 0
    chi_square = (((counts - 20_000 * expected) ** 2)[possible] / (20_000 * expected[possible])).sum()
    assert chi_square < CHI_SQUARE_999
    assert np.exp(logprobs) == pytest.approx(expected[tokens], rel=1e-5)


def sampled(chances: np.ndarray, temperature: float, draws: torch.Tensor) -> tuple[np.ndarray, np.ndarray]:
    with np.errstate(divide="ignore"):
        logits = torch.from_numpy(np.log(chances)).float().expand(len(draws), -1)
    tokens, logprobs = sample(logits, torch.full((len(draws), 1), temperature), draws)
    return tokens.numpy(), logprobs.numpy()


@given(st.lists(st.floats(0, 1), min_size=2, max_size=9).filter(sum), st.sampled_from([0.0, 0.25, 0.5, 1 - 2**-53]))
def test_a_draw_never_hits_what_is_impossible(weights, draw):
    chances = np.array(weights) / sum(weights)
    chances[chances < 1e-30] = 0
    (token,), _ = sampled(chances, 1.0, torch.tensor([draw], dtype=torch.float64))
    assert chances[token] > 0


def test_rows_are_aligned_at_the_right():
    ids, mask = left_pad([[5], [6, 7, 8]], 9)
    assert ids.tolist() == [[9, 9, 5], [6, 7, 8]]
    assert mask.tolist() == [[0, 0, 1], [1, 1, 1]]
