import pytest
from fakes import config

import strategies
from flwr_agent.errors import ConfigError
from strategies import FedAvg, FedProx


class HalfWeight(FedAvg):
    def weight(self, reply):
        return 0.5


def test_a_configuration_becomes_its_strategy_with_every_knob():
    run = config(
        seed=7,
        strategy__name="fedprox",
        strategy__prox_mu=0.5,
        federation__total_clients=9,
        federation__clients_per_round=3,
        federation__min_clients=2,
        federation__weights="examples",
    )
    found = strategies.load(run)
    assert type(found) is FedProx
    assert (found.prox_mu, found.weights, found.seed) == (0.5, "examples", 7)
    assert (found.total_clients, found.clients_per_round, found.min_clients) == (9, 3, 2)
    assert type(strategies.load(config())) is FedAvg


def test_a_third_party_strategy_is_named_by_module_and_class():
    assert isinstance(strategies.load(config(strategy__name=f"{__name__}:HalfWeight")), HalfWeight)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("fedavgg", "did you mean 'fedavg'"),
        ("nowhere:Class", "nowhere"),
        ("json:Missing", "Missing"),
        ("json:JSONDecoder", "subclass of strategies.RoundStrategy"),
    ],
)
def test_an_unknown_strategy_is_a_config_error(name, message):
    with pytest.raises(ConfigError, match=message):
        strategies.load(config(strategy__name=name))
