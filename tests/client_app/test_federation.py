"""Law 1: federated learning in process, through Flower's messages and the real ClientApp, against plain calls."""

from dataclasses import replace

import pytest
from fakes import InMemoryGrid, app_nodes, client, config
from policies import guessing

from client_app.app import app
from flwr_agent import protocol
from flwr_agent.arrays import digest, from_record, to_record
from flwr_agent.requests import TrainRequest
from flwr_agent.rl.learner import Learner, initial_arrays
from strategies import FedAvg, FedProx, stream

pytestmark = pytest.mark.usefixtures("task_identity", "no_pause")
ROUNDS = 3


@pytest.fixture
def no_pause(monkeypatch):
    monkeypatch.setattr(stream, "POLL_S", 0.0)


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    return guessing(tmp_path_factory.mktemp("policy")) | {"algorithm__kl_coef": 0.01}


@pytest.fixture
def run(keys):
    return config(**keys)


def plain_calls(run) -> str:
    """The same learner called once a round, without Flower."""
    learner = Learner(run)
    arrays = initial_arrays(run)
    base = digest(arrays)
    for round_ in range(1, ROUNDS + 1):
        request = TrainRequest(experiment="e", round=round_, client_id=0, config=run, arrays=arrays, base_digest=base)
        arrays = learner.train(request).arrays
    return digest(arrays)


def federated(run, serve, strategy=None) -> str:
    arrays = initial_arrays(run)
    record = protocol.run_record(run, experiment="e", base_digest=digest(arrays), in_buckets=True)
    total = run.federation.total_clients
    strategy = strategy or FedAvg(total_clients=total, clients_per_round=total)
    result = strategy.start(InMemoryGrid(serve), to_record(arrays), num_rounds=ROUNDS, timeout=600, train_config=record)
    return digest(from_record(result.arrays))


NODES = {11: None, 7: None}
ONE = {"federation__total_clients": 1, "federation__clients_per_round": 1}


def test_one_client_under_fedavg_is_its_learner_called_without_flower(keys):
    run = config(**keys, **ONE)
    assert federated(run, app_nodes(app, NODES)) == plain_calls(run)


def test_clients_that_answer_alike_are_one_client(run):
    learner = Learner(run)

    def alike(request):
        return replace(learner.train(replace(request, client_id=0)), client_id=request.client_id)

    assert federated(run, client(alike)) == plain_calls(run)


def test_fedprox_without_its_term_is_fedavg_and_with_it_is_not(keys):
    averaged = federated(config(**keys), app_nodes(app, NODES))

    def proximal(mu):
        run = config(**keys, strategy__name="fedprox", strategy__prox_mu=mu)
        return federated(run, app_nodes(app, NODES), FedProx(prox_mu=mu, total_clients=2, clients_per_round=2))

    assert proximal(0.0) == averaged
    assert proximal(0.5) != averaged
