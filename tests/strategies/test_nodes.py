"""Deployment: a node's partition-id binds it to one client."""

import pytest
from fakes import NEVER, FakeGrid, client, config, model
from flwr.app import Error, Message
from flwr.common.constant import ErrorCode

from flwr_agent import protocol
from flwr_agent.arrays import to_record
from flwr_agent.errors import QuorumError
from strategies import FedAvg, nodes, stream

pytestmark = pytest.mark.usefixtures("task_identity", "no_pause")
RUN = protocol.run_record(config(), experiment="run", base_digest="base")


@pytest.fixture
def no_pause(monkeypatch):
    monkeypatch.setattr(stream, "POLL_S", 0.0)
    monkeypatch.setattr(nodes, "POLL_S", 0.0)


class Sites:
    """Deployed nodes by node id; each says hello with its partition-id and trains only that client."""

    def __init__(self, partitions):
        self.partitions = partitions

    def __call__(self, message):
        node_config = {}
        if (partition := self.partitions[message.metadata.dst_node_id]) is not None:
            node_config["partition-id"] = partition
        if message.metadata.message_type == protocol.HELLO:
            return [Message(protocol.hello_reply_content(message.content, node_config), reply_to=message)]
        assert protocol.train_request(message.content, node_config).client_id == partition
        return client_reply(message)


def client_reply(message):
    message.content["config"]["placement"] = protocol.ANY
    return client()(message)


def asked(grid, num_rounds=1, **options):
    strategy = FedAvg(**({"total_clients": 2, "clients_per_round": 2, "connect_timeout_s": 0.02} | options))
    strategy.start(grid, to_record(model()), num_rounds=num_rounds, train_config=RUN)
    trained = [m for m in grid.sent if m.metadata.message_type == "train"]
    return [(protocol.client_of(m.content), m.metadata.dst_node_id) for m in trained]


def test_each_client_is_asked_on_the_node_that_holds_its_partition():
    assert asked(FakeGrid(Sites({11: 1, 7: 0}), nodes=[11, 7])) == [(0, 7), (1, 11)]


def test_a_node_says_hello_once_and_a_restarted_one_again():
    sites = Sites({11: 1, 7: 0, 99: 1})
    grid = FakeGrid(sites, nodes=[11, 7])

    strategy = FedAvg(total_clients=2, clients_per_round=2, connect_timeout_s=0.02)

    def restart(round_, _arrays):
        if round_ == 2:
            grid.nodes = [7, 99]

    strategy.start(grid, to_record(model()), num_rounds=3, train_config=RUN, evaluate_fn=restart)
    hellos = [m.metadata.dst_node_id for m in grid.sent if m.metadata.message_type == protocol.HELLO]
    assert hellos == [7, 11, 99]
    assert grid.sent[-1].metadata.dst_node_id == 99


@pytest.mark.parametrize(
    ("partitions", "message"),
    [
        ({11: 0, 7: 5}, r"client 1 unreachable: no node has partition-id=1 \(connected: 0, 5\); start a SuperNode"),
        ({11: None, 7: 0}, r"no node has partition-id=1 \(connected: 0\); start a SuperNode with --node-config"),
        ({}, r"no node has partition-id=0 \(connected: none\)"),
    ],
)
def test_a_client_whose_partition_no_node_holds_is_named_with_those_that_are_there(partitions, message):
    with pytest.raises(QuorumError, match=message):
        asked(FakeGrid(Sites(partitions), nodes=list(partitions)), min_clients=2)


def test_a_missing_site_does_not_stop_the_others():
    assert asked(FakeGrid(Sites({11: 1}), nodes=[11])) == [(1, 11)]


def test_a_node_that_connects_late_is_waited_for():
    class Late(FakeGrid):
        looks = 0

        def get_node_ids(self):
            self.looks += 1
            return self.nodes if self.looks > 3 else self.nodes[:1]

    assert asked(Late(Sites({7: 0, 11: 1}), nodes=[7, 11]), connect_timeout_s=5.0) == [(0, 7), (1, 11)]


def test_a_node_with_other_code_is_refused_by_name():
    sites = Sites({11: 1, 7: 0})

    def serve(message):
        replies = sites(message)
        if message.metadata.dst_node_id == 11:
            replies[0].content["config"]["code-hash"] = "0" * 64
        return replies

    with pytest.raises(QuorumError, match=r"node 11: code-hash 000000000000 there.*different code"):
        asked(FakeGrid(serve, nodes=[11, 7]), min_clients=2)


def test_a_node_without_the_app_says_why():
    def serve(message):
        return [Message(Error(2, "no query function"), reply_to=message)]

    with pytest.raises(QuorumError, match=r"node 11: refused query.hello: no query function"):
        asked(FakeGrid(serve, nodes=[11]))


def test_a_node_that_was_away_when_greeted_is_greeted_again():
    sites, away = Sites({11: 1, 7: 0}), [11]

    def serve(message):
        if message.metadata.dst_node_id in away:
            away.clear()
            return [Message(Error(ErrorCode.NODE_UNAVAILABLE, "gone"), reply_to=message)]
        return sites(message)

    assert asked(FakeGrid(serve, nodes=[11, 7]), connect_timeout_s=5.0) == [(0, 7), (1, 11)]


def test_a_node_that_does_not_answer_hello_costs_the_connect_timeout_only():
    grid = FakeGrid(Sites({11: 1, 7: 0}), nodes=[11, 7], delay=lambda m: NEVER if m.metadata.dst_node_id == 11 else 0)
    assert asked(grid) == [(0, 7)]


def test_placement_any_needs_no_hello():
    grid = FakeGrid(client(), nodes=[3])
    assert asked(grid, placement="any") == [(0, 3), (1, 3)]
    assert [m.metadata.message_type for m in grid.sent] == ["train", "train"]
