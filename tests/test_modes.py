"""A baseline is a federation's own configuration and one more key."""

import pytest

from flwr_agent.config import resolve
from flwr_agent.errors import ConfigError
from flwr_agent.world import to_adapter, to_shard

FEDERATION = {
    "federation.total_clients": 100,
    "federation.clients_per_round": 2,
    "federation.rounds": 70,
    "federation.epochs_per_round": 3,
    "federation.min_clients": 2,
    "federation.weights": "examples",
    "strategy.name": "fedprox",
    "strategy.prox_mu": 0.1,
    "trainer.tasks_per_step": 16,
    "trainer.minibatch_rows": 64,
}


def baseline(mode, **keys):
    return resolve(FEDERATION, {"federation.mode": mode}, {key.replace("__", "."): v for key, v in keys.items()})


@pytest.mark.parametrize("mode", ["centralized", "local"])
def test_one_key_makes_a_baseline_that_takes_as_many_steps_as_one_client_a_round(mode):
    run, federated = baseline(mode), resolve(FEDERATION)
    fed = run.federation
    assert (fed.clients_per_round, fed.min_clients, fed.weights, run.strategy.prox_mu) == (1, 1, "uniform", 0.0)
    assert (fed.rounds, fed.epochs_per_round) == (70, 3)
    assert run.trainer.tasks_per_step == federated.trainer.tasks_per_step
    assert run.fingerprint() != federated.fingerprint()


@pytest.mark.parametrize("mode", ["centralized", "local"])
def test_a_sample_matched_baseline_draws_what_all_clients_of_a_round_draw(mode):
    run = baseline(mode, federation__budget="samples")
    assert (run.trainer.tasks_per_step, run.trainer.minibatch_rows) == (32, 128)
    assert run.federation.epochs_per_round == 3


def test_a_centralized_run_has_one_optimizer_life_and_the_others_one_a_round():
    found = {mode: baseline(mode).trainer.optimizer_reset for mode in ("federated", "centralized", "local")}
    assert found == {"federated": "per_round", "centralized": "never", "local": "per_round"}
    assert baseline("centralized", trainer__optimizer_reset="per_round").trainer.optimizer_reset == "per_round"


@pytest.mark.parametrize("mode", ["federated", "centralized", "local"])
@pytest.mark.parametrize("budget", ["steps", "samples"])
def test_what_is_settled_stays_as_it_is(mode, budget):
    run = baseline(mode, federation__budget=budget)
    assert resolve(run.flat()) == run


def test_one_client_alone_is_a_federation_of_one():
    one = {"federation.total_clients": 1, "federation.clients_per_round": 1}
    assert resolve(one).federation.mode == "federated"
    assert resolve(one).trainer.optimizer_reset == "per_round"
    assert resolve(one).fingerprint() != resolve(one, {"federation.mode": "centralized"}).fingerprint()


@pytest.mark.parametrize("partition", [{}, {"partition__strategy": "catalog_split"}])
def test_a_centralized_run_holds_every_training_task_in_the_standard_world(partition):
    run = baseline("centralized", env__name="webshop", **partition)
    tasks = to_adapter(run).tasks("train")
    shard = to_shard(run, tasks, 0)
    assert sorted(shard.task_ids) == sorted(task.id for task in tasks)
    assert shard.variant is None


def test_a_local_run_holds_its_client_s_shard_of_the_federation():
    run, federated = baseline("local", federation__local_client=42), resolve(FEDERATION)
    tasks = to_adapter(run).tasks("train")
    assert to_shard(run, tasks, 42) == to_shard(federated, tasks, 42)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"federation.local_client": 1}, "federation.local_client=1: is the client of federation.mode=local alone"),
        ({"federation.mode": "local", "federation.local_client": 2}, "clients are 0 to 1"),
        ({"federation.mode": "centralised"}, "did you mean 'centralized'"),
        ({"federation.extra_clients": 1}, "with clients_per_round makes 3, more than federation.total_clients=2"),
        ({"federation.mode": "federated", "trainer.optimizer_reset": "never"}, "or a baseline as federation.mode"),
        (
            {"federation.budget": "samples", "federation.mode": "local", "trainer.tasks_per_step": 10_001},
            "exceeds 100000",
        ),
    ],
)
def test_keys_that_fit_no_mode_are_refused(keys, message):
    with pytest.raises(ConfigError, match=message):
        resolve(keys)
