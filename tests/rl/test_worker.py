"""The learner inside a worker."""

import gc
import weakref

import pytest
from fakes import config
from policies import guessing

from flwr_agent.requests import EvaluateRequest
from flwr_agent.rl import worker
from flwr_agent.rl.learner import initial_model


@pytest.fixture
def keys(tmp_path):
    return guessing(tmp_path) | {"evaluation__tasks": 1, "evaluation__greedy": False}


def test_a_learner_is_released_before_another_configuration_s_is_built(keys):
    """Nothing but the explicit release may free it: the collector is off, and trainers hang in cycles."""

    def play(**fields) -> weakref.ref:
        run = config(**keys, **fields)
        worker.serve(EvaluateRequest(experiment="e", round=0, config=run, arrays=initial_model(run).arrays))
        [learner] = worker._LEARNERS.values()
        return weakref.ref(learner.trainer.model)

    gc.disable()
    try:
        first = play()
        assert first() is not None
        second = play(seed=7)
        assert first() is None
        assert second() is not None
    finally:
        gc.enable()
        worker._LEARNERS.clear()
