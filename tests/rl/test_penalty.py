"""What a broken format costs is a matter of training alone."""

import pytest
from fakes import config
from policies import guessing

from flwr_agent.arrays import digest
from flwr_agent.requests import EvaluateRequest, TrainRequest
from flwr_agent.rl.learner import Learner, initial_arrays


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    """Answers of one token, of which some are moves: where all are broken alike, a penalty cancels within the group."""
    one_token = {"rollout__max_new_tokens": 1, "algorithm__scale_rewards": "none"}
    return guessing(tmp_path_factory.mktemp("policy")) | one_token


def test_a_penalty_moves_what_is_learnt_and_no_held_out_score(keys):
    models, scores = [], []
    for penalty in (0.1, 5.0):
        run = config(**keys, algorithm__invalid_penalty=penalty)
        learner, arrays = Learner(run), initial_arrays(run)
        played = learner.evaluate(EvaluateRequest(experiment="e", round=0, config=run, arrays=arrays))
        request = TrainRequest(experiment="e", round=1, client_id=0, config=run, arrays=arrays, base_digest="")
        trained = learner.train(request)
        assert 0 < trained.metrics["valid_actions"] < 1
        assert played.metrics["valid_actions"] < 1
        scores.append((played.outcomes, played.metrics["task_score"], played.metrics["success"]))
        models.append(digest(trained.arrays))
    assert scores[0] == scores[1]
    assert models[0] != models[1]
