"""What a learner answers depends on the request alone."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from fakes import config
from policies import guessing

from envs.tinyguess import TinyGuess
from flwr_agent.arrays import digest
from flwr_agent.errors import ProtocolError
from flwr_agent.requests import EvaluateRequest, TrainRequest
from flwr_agent.rl import rollout
from flwr_agent.rl.learner import Learner, initial_arrays
from flwr_agent.seeds import seed_for
from flwr_agent.world import to_shard

ROUNDS, CLIENTS = (1, 2), (0, 1)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return config(**guessing(tmp_path_factory.mktemp("policy")), algorithm__kl_coef=0.01)


@pytest.fixture(scope="module")
def learner(run):
    return Learner(run)


@pytest.fixture(scope="module")
def arrays(run):
    return initial_arrays(run)


@pytest.fixture
def ask(run, learner, arrays):
    def request(round_: int = 1, client: int = 0, **fields) -> TrainRequest:
        base = TrainRequest(
            experiment="e",
            round=round_,
            client_id=client,
            config=run,
            arrays=arrays,
            base_digest=learner.base_digest,
        )
        return replace(base, **fields)

    return request


@pytest.fixture
def score(run, arrays):
    return EvaluateRequest(experiment="e", round=1, config=run, arrays=arrays)


def bits(reply):
    """All of a reply but the seconds it took."""
    numbers = {name: value for name, value in reply.metrics.items() if not name.startswith("time/")}
    return digest(reply.arrays), reply.num_examples, numbers


def test_any_order_of_clients_and_rounds_gives_the_same_bits(learner, ask, run):
    questions = list(itertools.product(ROUNDS, CLIENTS))
    alone = {q: bits(Learner(run).train(ask(*q))) for q in questions[:2]}
    first = {q: bits(learner.train(ask(*q))) for q in questions}
    again = {q: bits(learner.train(ask(*q))) for q in reversed(questions)}
    assert first == again
    assert {q: first[q] for q in alone} == alone
    assert len({found[0] for found in first.values()}) == len(questions)


def test_evaluation_changes_no_later_training_and_training_no_later_evaluation(learner, ask, score):
    expected, scored = bits(learner.train(ask())), learner.evaluate(score)
    assert bits(learner.train(ask())) == expected
    after = learner.evaluate(score)
    assert after.outcomes == scored.outcomes
    assert after.metrics | {"time/evaluate": 0} == scored.metrics | {"time/evaluate": 0}


def test_a_request_that_fails_leaves_no_trace(learner, ask):
    expected = bits(learner.train(ask()))
    broken = {name: values[:1] for name, values in ask().arrays.items()}
    with pytest.raises(ProtocolError):
        learner.train(ask(arrays=broken))
    assert bits(learner.train(ask())) == expected


def test_a_round_moves_the_weights_and_says_what_it_measured(learner, ask, arrays):
    reply = learner.train(ask())
    assert reply.arrays.keys() == arrays.keys()
    assert digest(reply.arrays) != digest(arrays)
    assert all(values.dtype == np.float32 for values in reply.arrays.values())
    assert (reply.round, reply.client_id) == (1, 0)
    assert reply.num_examples == 2 * reply.metrics["rows"] > 0
    assert {"time/load", "time/rollout", "time/update", "loss", "grad_norm", "kl", "reward"} <= set(reply.metrics)
    assert all(np.isfinite(value) for value in reply.metrics.values())
    assert reply.metrics["sampler_gap"] < 1e-4
    assert set(reply.metrics) == set(learner.train(ask(2, 1)).metrics)


def test_a_client_plays_groups_on_tasks_of_its_shard_alone(learner, ask, run, monkeypatch):
    played = watched(monkeypatch)
    learner.train(ask(1, 1))
    shard = to_shard(run, TinyGuess(style="compact").tasks("train"), 1)
    assert {one.task.id for one in played} <= set(shard.task_ids)
    by_slot = [played[at : at + 3] for at in range(0, len(played), 3)]
    assert len(by_slot) == 2 * 2
    for siblings in by_slot:
        assert len({(one.task.id, one.seed) for one in siblings}) == 1
        assert [one.sample for one in siblings] == [0, 1, 2]
    assert len({siblings[0].seed for siblings in by_slot}) == 4


def test_evaluation_plays_the_first_held_out_tasks_once_sampled_and_once_greedy(learner, score, monkeypatch):
    played = watched(monkeypatch)
    reply = learner.evaluate(score)
    expected = [task.id for task in TinyGuess(style="compact").tasks("val")[:5]]
    assert [one.task.id for one in played] == expected * 2
    assert {one.task.split for one in played} == {"val"}
    assert [one.temperature for one in played] == [0.4] * 5 + [0.0] * 5
    assert {name: len(values) for name, values in reply.outcomes.items()} == dict.fromkeys(
        ("sampled/success", "sampled/task_score", "greedy/success", "greedy/task_score"), 5
    )
    assert reply.tasks == tuple(expected)
    assert reply.types == tuple(task.meta["category"] for task in TinyGuess().tasks("val")[:5])
    assert reply.metrics["success"] == np.mean(reply.outcomes["sampled/success"])
    assert reply.metrics["greedy/success"] == np.mean(reply.outcomes["greedy/success"])


def test_a_reply_says_how_far_the_client_moved_the_model(learner, ask):
    request = ask(1, 0)
    reply = learner.train(request)
    square = sum(float(np.square(reply.arrays[name] - request.arrays[name]).sum()) for name in reply.arrays)
    assert reply.metrics["update_norm"] == pytest.approx(square**0.5, rel=1e-5)
    assert reply.metrics["update_norm"] > 0


def test_episodes_are_kept_in_words_when_they_are_asked_for(learner, score):
    assert learner.evaluate(score).episodes == ()
    asked = replace(score, config=replace(score.config, report=replace(score.config.report, episodes=1)))
    kept = learner.evaluate(asked).episodes
    assert [(one["mode"], one["kind"]) for one in kept] == [
        (mode, kind) for mode in ("sampled", "greedy") for kind in ("best", "worst")
    ]
    assert all(turn["prompt"] for one in kept for turn in one["turns"])


def test_held_out_tasks_have_seeds_of_their_own_whatever_the_run_s_is(learner, score, monkeypatch):
    played = watched(monkeypatch)
    for seed in (1, 2):
        learner.evaluate(replace(score, config=replace(score.config, seed=seed)))
    expected = [seed_for("evaluation", number) for number in range(5)]
    assert [one.seed for one in played] == expected * 4


def test_another_base_model_is_refused_where_a_kl_term_would_measure_against_it(learner, ask, run):
    with pytest.raises(ProtocolError, match="base model here is not the server's"):
        learner.train(ask(base_digest="0" * 64))
    plain = config(**{key.replace(".", "__"): v for key, v in run.flat().items()} | {"algorithm__kl_coef": 0.0})
    assert Learner(plain).train(ask(config=plain, base_digest="0" * 64)).num_examples > 0


def watched(monkeypatch):
    """A list that grows by every attempt to come."""
    played: list[rollout.Attempt] = []
    play = rollout.Rollout.play
    monkeypatch.setattr(rollout.Rollout, "play", lambda self, attempts: played.extend(attempts) or play(self, attempts))
    return played
