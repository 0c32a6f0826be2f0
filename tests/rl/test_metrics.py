import pytest
from fakes import config
from policies import guessing

from flwr_agent import manifest
from flwr_agent.requests import TrainRequest
from flwr_agent.rl.learner import Learner, initial_arrays

PPO = {"algorithm__name": "ppo", "algorithm__group_size": 1}


@pytest.mark.parametrize("keys", [{"algorithm__kl_coef": 0.01}, PPO], ids=["grpo", "ppo"])
def test_every_number_that_a_trainer_reports_is_in_the_manifest_of_what_leaves_a_client(keys, tmp_path):
    run = config(**guessing(tmp_path) | keys)
    learner = Learner(run)
    request = TrainRequest(
        experiment="e", round=1, client_id=0, config=run, arrays=initial_arrays(run), base_digest=learner.base_digest
    )
    reported = learner.train(request).metrics
    assert [name for name in reported if not manifest.is_listed(name)] == []
    assert {"reward", "loss", "grad_norm"} <= reported.keys()
