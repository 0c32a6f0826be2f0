"""What a broken format costs is a matter of training alone."""

import pytest
from fakes import config
from policies import guessing

from flwr_agent.requests import EvaluateRequest
from flwr_agent.rl.learner import Learner, initial_arrays


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    return guessing(tmp_path_factory.mktemp("policy"))


def test_a_penalty_moves_no_held_out_score(keys):
    scores = []
    for penalty in (0.1, 5.0):
        run = config(**keys, algorithm__invalid_penalty=penalty)
        learner, arrays = Learner(run), initial_arrays(run)
        answer = learner.evaluate(EvaluateRequest(experiment="e", round=0, config=run, arrays=arrays))
        assert answer.metrics["valid_actions"] < 1
        scores.append((answer.outcomes, answer.metrics["task_score"], answer.metrics["success"]))
    assert scores[0] == scores[1]
