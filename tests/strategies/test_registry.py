import pytest
from fakes import config

import strategies
from flwr_agent.errors import ConfigError
from flwr_agent.requests import TrainReply
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
        ("json:JSONDecoder", "module json has no subclass 'JSONDecoder' of strategies.RoundStrategy"),
    ],
)
def test_an_unknown_strategy_is_a_config_error(name, message):
    with pytest.raises(ConfigError, match=message):
        strategies.load(config(strategy__name=name))


class Breaks(FedAvg):
    def __init__(self, **options):
        raise RuntimeError("two\nlines")


def test_a_strategy_that_breaks_when_it_is_imported_or_made_is_one_line_that_names_the_key(tmp_path, monkeypatch):
    (tmp_path / "broken_rule.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    for name, message in [
        ("broken_rule:Any", r"cannot be imported: ZeroDivisionError: division by zero$"),
        (f"{__name__}:Breaks", r"cannot be made: RuntimeError: two lines$"),
    ]:
        with pytest.raises(ConfigError, match=f"^strategy.name='{name}': {message}"):
            strategies.load(config(strategy__name=name))


def test_clients_weigh_what_they_are_given():
    by_client = strategies.load(config(federation__weights="3,1"))
    assert by_client.weights == (3.0, 1.0) == FedAvg(weights=[3, 1], total_clients=2, clients_per_round=2).weights
    replies = [TrainReply(round=1, client_id=i, arrays={}, num_examples=9) for i in (1, 0)]
    assert [by_client.weight(reply) for reply in replies] == [1.0, 3.0]


@pytest.mark.parametrize("weights", ["exampels", "3", "3,0", "1,nan", "1,2,3", ""])
def test_weights_that_are_no_rule_are_refused(weights):
    with pytest.raises(ConfigError, match="must be uniform, examples, or 2 positive numbers"):
        FedAvg(weights=weights, total_clients=2, clients_per_round=2)
