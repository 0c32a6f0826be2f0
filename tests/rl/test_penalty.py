"""What a broken format costs is a matter of training alone."""

from fakes import config
from policies import guessing

from flwr_agent.requests import EvaluateRequest
from flwr_agent.rl.learner import Learner, initial_arrays


def test_held_out_episodes_carry_no_penalty_for_a_broken_format(tmp_path):
    scores = []
    for penalty in (0.0, 5.0):
        run = config(**guessing(tmp_path), algorithm__invalid_penalty=penalty)
        request = EvaluateRequest(experiment="e", round=0, config=run, arrays=initial_arrays(run))
        answer = Learner(run).evaluate(request)
        assert answer.metrics["valid_actions"] < 1
        scores.append({name: value for name, value in answer.metrics.items() if not name.startswith("time/")})
    assert scores[0] == scores[1]
