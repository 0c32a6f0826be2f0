import json

import pytest
from fakes import config, model, train
from flwr.app import ConfigRecord, MetricRecord, RecordDict

from flwr_agent import protocol
from flwr_agent.arrays import digest, to_record
from flwr_agent.errors import ProtocolError
from flwr_agent.requests import EvaluateReply, EvaluateRequest, TrainRequest


def asked(client_id=1, placement=protocol.ANY, run=None, **changes):
    record = protocol.run_record(run or config(), experiment="e", base_digest="b")
    record = protocol.addressed(record, round_=3, client_id=client_id, placement=placement)
    return protocol.request_content(to_record(model()), ConfigRecord({**record, **changes}))


def test_a_train_request_survives_the_wire():
    run = config(algorithm__reward_scale=10.0, federation__rounds=4, strategy__name="fedprox", strategy__prox_mu=0.5)
    request = protocol.train_request(asked(run=run), {})
    assert (request.experiment, request.round, request.client_id, request.base_digest) == ("e", 3, 1, "b")
    assert request.config == run
    assert digest(request.arrays) == digest(model())


def test_a_train_reply_survives_the_wire():
    request = protocol.train_request(asked(), {})
    reply = train(request)
    got = protocol.train_reply(protocol.train_reply_content(request, reply), asked())
    assert (got.round, got.client_id, got.num_examples, got.metrics) == (3, 1, 11, reply.metrics)
    assert digest(got.arrays) == digest(reply.arrays)


def test_an_evaluation_survives_the_wire():
    record = protocol.for_round(
        protocol.run_record(config(), experiment="e", base_digest="b"), round_=2, placement="any"
    )
    content = protocol.request_content(to_record(model()), record)
    request = protocol.evaluate_request(content)
    assert isinstance(request, EvaluateRequest)
    assert (request.round, request.config) == (2, config())
    reply = EvaluateReply(
        round=2,
        metrics={"success": 0.5},
        outcomes={"sampled/success": (1.0, 0.0), "greedy/success": (0.0, 0.0)},
        tasks=("a", "b"),
        types=("x", "x"),
    )
    assert protocol.evaluate_reply(protocol.evaluate_reply_content(request, reply), content) == reply


def test_a_message_holds_one_record_of_each_kind():
    request = protocol.train_request(asked(), {})
    content = protocol.train_reply_content(request, train(request))
    assert list(content.array_records) == ["arrays"]
    assert list(content.config_records) == ["config"]
    assert list(content.metric_records) == ["metrics"]
    assert content["metrics"]["num-examples"] == 11


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"protocol-version": 2}, "protocol-version 2 there, 1 here: install the same flwr-agent"),
        ({"code-hash": "0" * 64}, "code-hash 000000000000 there, .* run different code; submit the run again"),
        ({"server-round": "3"}, "server-round must be of type int, not str"),
    ],
)
def test_a_request_of_another_version_is_refused_with_the_way_out(changes, message):
    with pytest.raises(ProtocolError, match=message):
        protocol.train_request(asked(**changes), {})


def test_a_bound_node_refuses_anothers_client_and_names_both():
    content = asked(client_id=1, placement=protocol.BOUND)
    assert isinstance(protocol.train_request(content, {"partition-id": 1}), TrainRequest)
    for node_config, name in [({"partition-id": 0}, "0"), ({}, "None")]:
        with pytest.raises(ProtocolError, match=rf"client 1, but this node's partition-id is {name}"):
            protocol.train_request(content, node_config)


@pytest.mark.parametrize("key", ["env.name", "partition.strategy"])
def test_a_site_loads_no_code_that_the_server_names(key):
    run = config(**{key.replace(".", "__"): "somebody.else:Thing"})
    with pytest.raises(ProtocolError, match=f"{key}='somebody.else:Thing' names code"):
        protocol.train_request(asked(placement=protocol.BOUND, run=run), {"partition-id": 1})
    assert protocol.train_request(asked(run=run), {}).config == run


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"env__url": "http://127.0.0.1:1, http://elsewhere.example:2"},
            "env.url='http://elsewhere.example:2' is another",
        ),
        (
            {"env__verifier": "https://elsewhere.example/judge"},
            "env.verifier='https://elsewhere.example/judge' is another",
        ),
        (
            {"env__url": "http://localhost:1", "env__token_file": "/etc/passwd"},
            "env.token_file names a file of the site",
        ),
    ],
)
def test_a_site_reaches_no_other_machine_for_the_server_and_sends_it_no_file(changes, message):
    run = config(**changes)
    content = asked(placement=protocol.BOUND, run=run)
    with pytest.raises(ProtocolError, match=message):
        protocol.train_request(content, {"partition-id": 1})
    with pytest.raises(ProtocolError, match=message):
        protocol.evaluate_request(content)
    assert protocol.train_request(asked(run=run), {}).config == run


def test_a_site_plays_what_is_served_on_its_own_machine():
    run = config(
        env__name="remote", env__url="http://127.0.0.1:1,http://localhost:2", env__verifier="http://[::1]:3/judge"
    )
    assert protocol.train_request(asked(placement=protocol.BOUND, run=run), {"partition-id": 1}).config == run


def test_a_simulated_node_serves_any_client():
    assert protocol.train_request(asked(client_id=1), {"partition-id": 0}).client_id == 1


@pytest.mark.parametrize(("key", "value"), [("server-round", 2), ("client-id", 0), ("experiment", "other")])
def test_a_reply_to_another_request_is_refused(key, value):
    request = protocol.train_request(asked(), {})
    content = protocol.train_reply_content(request, train(request))
    content["config"][key] = value
    with pytest.raises(ProtocolError, match=f"answers {key}={value}"):
        protocol.train_reply(content, asked())


def test_a_reply_without_its_echo_is_refused_only_where_the_request_was_ours():
    request = protocol.train_request(asked(), {})
    content = protocol.train_reply_content(request, train(request))
    del content["config"]
    with pytest.raises(ProtocolError, match="ConfigRecord 'config'"):
        protocol.train_reply(content, asked())
    foreign = ConfigRecord({"lr": 0.1, "server-round": 3, "client-id": 1})
    assert protocol.train_reply(content, RecordDict({"config": foreign})).client_id == 1


@pytest.mark.parametrize("metrics", [MetricRecord(), MetricRecord({"num-examples": 1.0}), ConfigRecord()])
def test_a_reply_without_its_number_of_rows_is_refused(metrics):
    request = protocol.train_request(asked(), {})
    content = protocol.train_reply_content(request, train(request))
    content["metrics"] = metrics
    with pytest.raises(ProtocolError):
        protocol.train_reply(content, asked())


def test_hello_tells_the_partition_and_refuses_other_code():
    ask = protocol.hello_content()
    assert protocol.hello_reply(protocol.hello_reply_content(ask, {"partition-id": 4})) == 4
    assert protocol.hello_reply(protocol.hello_reply_content(ask, {})) is None
    answer = protocol.hello_reply_content(ask, {"partition-id": 4})
    answer["config"]["code-hash"] = "other"
    with pytest.raises(ProtocolError, match="different code"):
        protocol.hello_reply(answer)
    ask["config"]["protocol-version"] = 7
    with pytest.raises(ProtocolError, match="protocol-version 7"):
        protocol.hello_reply_content(ask, {})


def test_the_client_resolves_the_configuration_again():
    content = asked()
    content["config"]["run-config"] = json.dumps({"trainer.lr": -1.0})
    with pytest.raises(ValueError, match=r"trainer\.lr"):
        protocol.train_request(content, {})
