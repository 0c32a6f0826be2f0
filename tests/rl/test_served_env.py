"""A learner that acts in a served environment does what it does in one of its own process."""

from dataclasses import replace

import pytest
from fakes import config
from policies import guessing

from flwr_agent.requests import TrainRequest
from flwr_agent.rl.episode import StopReason
from flwr_agent.rl.learner import Learner, initial_arrays
from flwr_agent.world import to_adapter
from tests.envs.remote.hosting import builder, hosted


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return config(**guessing(tmp_path_factory.mktemp("policy")))


def trained(run):
    learner, arrays = Learner(run), initial_arrays(run)
    request = TrainRequest(
        experiment="e", round=1, client_id=0, config=run, arrays=arrays, base_digest=learner.base_digest
    )
    reply = learner.train(request)
    numbers = {name: value for name, value in reply.metrics.items() if not name.startswith("time/")}
    return {name: values.tobytes() for name, values in reply.arrays.items()}, numbers


def test_a_round_in_a_served_environment_gives_the_bits_of_one_in_process(run, tmp_path):
    with hosted(builder("tinyguess"), tmp_path) as host:
        env = replace(run.env, name="remote", url=host.url, token_file=host.token_file, digest=host.digest)
        assert trained(replace(run, env=env)) == trained(run)
        assert host.leases.num_taken == 0


def fails(transcript):
    raise ZeroDivisionError("inside")


def test_a_verifier_that_fails_is_a_failed_episode_and_not_a_zero(run):
    short = replace(run.rollout, max_turns=6)
    run = replace(run, env=replace(run.env, verifier=f"{__name__}:fails"), rollout=short)
    episodes = Learner(run).play(to_adapter(run).tasks("val")[:2], purpose="test", temperature=1.0)
    assert [episode.stop for episode in episodes] == [StopReason.ENV_ERROR] * 2
    assert all("ZeroDivisionError: inside" in episode.error for episode in episodes)
