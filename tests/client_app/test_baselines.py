"""Baselines against the federation they belong to, through Flower's messages and the real ClientApp."""

import pytest
from fakes import InMemoryGrid, app_nodes, config
from policies import guessing

import strategies
from client_app.app import app
from flwr_agent import protocol
from flwr_agent.arrays import ACTOR, digest, from_record, to_record
from flwr_agent.errors import ProtocolError
from flwr_agent.requests import TrainRequest
from flwr_agent.rl import moments, worker
from flwr_agent.rl.learner import Learner, initial_arrays, initial_model
from strategies import stream

pytestmark = pytest.mark.usefixtures("task_identity", "no_pause")
ROUNDS, EPOCHS, STEPS = 2, 2, 1
ONE = {"federation__total_clients": 1, "federation__clients_per_round": 1}


@pytest.fixture
def no_pause(monkeypatch):
    monkeypatch.setattr(stream, "POLL_S", 0.0)


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    return guessing(tmp_path_factory.mktemp("policy")) | {"trainer__minibatch_rows": 0, "algorithm__kl_coef": 0.01}


def play(run, *, forget=False):
    """The run's model after its rounds; `forget` starts every round with another worker."""
    model = initial_model(run)
    record = protocol.run_record(run, experiment="e", base_digest=model.base_digest)
    serve = app_nodes(app, {11: None, 7: None})

    def forgetful(message):
        worker._LEARNERS.clear()
        return serve(message)

    grid = InMemoryGrid(forgetful if forget else serve)
    strategy = strategies.load(run)
    result = strategy.start(grid, to_record(model.arrays), num_rounds=ROUNDS, timeout=600, train_config=record)
    return from_record(result.arrays)


def test_one_client_under_fedavg_is_the_centralized_run_whose_optimizer_starts_anew_each_round(keys):
    alone = play(config(**keys, **ONE))
    central = play(config(**keys, federation__mode="centralized", trainer__optimizer_reset="per_round"))
    assert digest(central) == digest(alone)


def test_a_local_run_is_its_client_called_alone(keys):
    run = config(**keys, federation__mode="local", federation__local_client=1)
    learner, arrays = Learner(run), initial_arrays(run)
    base = learner.base_digest
    for round_ in range(1, ROUNDS + 1):
        request = TrainRequest(experiment="e", round=round_, client_id=1, config=run, arrays=arrays, base_digest=base)
        arrays = learner.train(request).arrays
    assert digest(play(run)) == digest(arrays)


def steps(arrays):
    return {float(values) for name, values in arrays.items() if name.startswith(f"{moments.PREFIX}step/")}


@pytest.fixture(scope="module")
def central(keys):
    return config(**keys, federation__mode="centralized")


def test_the_optimizer_of_a_centralized_run_counts_every_step_of_all_rounds(central):
    assert steps(initial_arrays(central)) == {0.0}
    assert steps(play(central)) == {float(ROUNDS * EPOCHS * STEPS)}


def test_the_optimizer_lives_in_the_model_and_not_in_a_worker(central, keys):
    kept = play(central)
    assert digest(play(central, forget=True)) == digest(kept)
    reset = play(config(**keys, federation__mode="centralized", trainer__optimizer_reset="per_round"))
    actor = {name: values for name, values in kept.items() if name.startswith(ACTOR)}
    assert digest(actor) != digest(reset)


def test_moments_that_do_not_fit_are_refused_by_name(central):
    learner, arrays = Learner(central), initial_arrays(central)
    name = next(name for name in arrays if name.startswith(f"{moments.PREFIX}exp_avg/"))
    request = TrainRequest(
        experiment="e", round=1, client_id=0, config=central, arrays=arrays, base_digest=learner.base_digest
    )
    arrays.pop(name)
    with pytest.raises(ProtocolError, match=r"the optimizer's exp_avg of actor/.* is missing or does not fit"):
        learner.train(request)
