"""What a broken format costs is a matter of training alone."""

import pytest
from fakes import config
from policies import guessing

from flwr_agent.arrays import digest
from flwr_agent.requests import EvaluateRequest, TrainRequest
from flwr_agent.rl.learner import Learner, initial_arrays


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    return guessing(tmp_path_factory.mktemp("policy"))


def test_a_penalty_moves_what_is_learnt_and_no_held_out_score(keys):
    models, scores = [], []
    for penalty in (0.1, 5.0):
        run = config(**keys, algorithm__invalid_penalty=penalty)
        learner, arrays = Learner(run), initial_arrays(run)
        answer = learner.evaluate(EvaluateRequest(experiment="e", round=0, config=run, arrays=arrays))
        assert answer.metrics["valid_actions"] < 1
        scores.append((answer.outcomes, answer.metrics["task_score"], answer.metrics["success"]))
        request = TrainRequest(experiment="e", round=1, client_id=0, config=run, arrays=arrays, base_digest="")
        models.append(digest(learner.train(request).arrays))
    assert scores[0] == scores[1]
    assert models[0] != models[1]
