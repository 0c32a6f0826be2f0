"""One trainer over many rounds: nothing but the request decides what a round gives."""

import gc

import numpy as np
import pytest
import torch
from fakes import config
from policies import chat, policy, random_rows, start

from flwr_agent.errors import ProtocolError
from flwr_agent.rl.batch import to_batch
from flwr_agent.rl.trainer import Trainer
from flwr_agent.rl.weights import to_arrays

ROWS = random_rows(12)
KEYS = {"env__name": "tinyguess", "trainer__minibatch_rows": 2, "trainer__lr": 0.02, "trainer__weight_decay": 0.0}
"""Six optimizer steps a round."""


def trainer_of(**keys) -> Trainer:
    return Trainer(policy(), None, chat(), config(**KEYS | keys))


def play(trainer: Trainer, arrays, *, prox_mu: float = 0.0, rows=ROWS) -> dict[str, np.ndarray]:
    trainer.begin_round(arrays, prox_mu=prox_mu)
    trainer.train(rows, seed=1)
    return trainer.weights()


def is_same(a, b) -> bool:
    return a.keys() == b.keys() and all(a[name].tobytes() == b[name].tobytes() for name in a)


def states(trainer: Trainer) -> list[torch.Tensor]:
    return [value for state in trainer.seam.optimizer.state.values() for value in state.values()]


def test_the_proximal_term_holds_weights_near_where_the_round_began():
    drifts, norms = [], []
    for mu in (0.0, 0.1, 1.0):
        trainer = start(trainer_of(), prox_mu=mu)
        before = trainer.weights()
        metrics = trainer.train(ROWS, seed=1)
        assert metrics["updates"] == 6
        drifts.append(sum(np.sum((after - before[name]) ** 2) for name, after in trainer.weights().items()) ** 0.5)
        norms.append(metrics["prox_norm"])
    assert drifts[0] > 1.02 * drifts[1] > 1.02**2 * drifts[2] > 0
    assert norms[0] == 0.0
    assert 0 < norms[1] < norms[2]


def test_the_anchor_is_the_rounds_own_and_gone_with_it():
    trainer, first = trainer_of(), to_arrays(policy())
    second = play(trainer, first, prox_mu=1.0)
    assert is_same(play(trainer, second, prox_mu=1.0), play(trainer_of(), second, prox_mu=1.0))
    assert is_same(play(trainer, second), play(trainer_of(), second))
    assert not is_same(play(trainer, second), play(trainer, second, prox_mu=1.0))


def test_weights_are_loaded_and_state_is_zeroed_where_they_lie():
    trainer, other = trainer_of(), to_arrays(policy(seed=5))
    play(trainer, to_arrays(policy()))
    places = [t.data_ptr() for t in [*trainer.model.parameters(), *states(trainer)]]
    trainer.begin_round(other)
    assert [t.data_ptr() for t in [*trainer.model.parameters(), *states(trainer)]] == places
    assert is_same(trainer.weights(), other)
    assert len(states(trainer)) == 3 * len(other)
    assert not any(state.any() for state in states(trainer))


def test_a_round_in_a_used_trainer_is_the_round_of_a_fresh_one():
    used, arrays = trainer_of(), to_arrays(policy(seed=5))
    play(used, to_arrays(policy()), rows=random_rows(9, seed=4))
    assert is_same(play(used, arrays), play(trainer_of(), arrays))


def test_gradients_of_an_update_that_was_cut_short_reach_no_later_round():
    used, arrays = trainer_of(), to_arrays(policy())
    used.begin_round(arrays)
    used.seam.loss(to_batch(ROWS, pad_id=0, num_tokens=9, device="cpu")).backward()
    assert is_same(play(used, arrays), play(trainer_of(), arrays))


def test_an_optimizer_that_is_never_reset_goes_on_counting():
    one = {"federation__total_clients": 1, "federation__clients_per_round": 1}
    kept, arrays = trainer_of(trainer__optimizer_reset="never", **one), to_arrays(policy())
    play(kept, arrays)
    assert not is_same(play(kept, arrays), play(trainer_of(), arrays))
    assert {float(state["step"]) for state in kept.seam.optimizer.state.values()} == {12.0}


def without(arrays, name):
    return {n: values for n, values in arrays.items() if n != name}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda a: without(a, "model.norm.weight"), r"1 names differ, first 'model.norm.weight'"),
        (lambda a: a | {"critic.head": np.zeros(1, "f4")}, r"1 names differ, first 'critic.head'"),
        (lambda a: a | {"model.norm.weight": np.zeros(3, "f4")}, r"model.norm.weight is \(3,\), expected \(16,\)"),
        (lambda a: {}, r"names differ"),
    ],
)
def test_weights_of_another_model_are_refused_by_name_and_none_is_loaded(change, message):
    trainer, own = trainer_of(), to_arrays(policy())
    others = {name: values + 1 for name, values in own.items()}
    with pytest.raises(ProtocolError, match=message):
        trainer.begin_round(change(others))
    assert is_same(trainer.weights(), own)


def test_twenty_rounds_leave_as_many_tensors_and_bytes_as_three():
    def held() -> tuple[int, int]:
        gc.collect()
        tensors = [thing for thing in gc.get_objects() if issubclass(type(thing), torch.Tensor)]
        return len(tensors), sum(t.untyped_storage().nbytes() for t in tensors)

    trainer, arrays, seen = trainer_of(), to_arrays(policy()), []
    for num_rounds in (3, 17):
        for _ in range(num_rounds):
            play(trainer, arrays, prox_mu=0.1, rows=ROWS[:4])
        seen.append(held())
    assert seen[0] == seen[1]
    assert seen[0][0] > len(arrays)
