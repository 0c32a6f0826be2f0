import logging
import subprocess
import sys

import pytest
from fakes import FakeGrid, InMemoryGrid, app_nodes, config, model
from flwr.app import Array, ArrayRecord, ConfigRecord, Message

from client_app.app import app
from flwr_agent import protocol
from flwr_agent.arrays import to_record
from flwr_agent.paths import ROOT
from flwr_agent.rl import remote
from strategies.nodes import farewell

pytestmark = pytest.mark.usefixtures("task_identity")


def ask(content, kind, partition=None):
    grid = FakeGrid(app_nodes(app, {5: partition}), nodes=[5])
    (reply,) = grid.send_and_receive([Message(content, 5, kind)])
    return reply


def train_content(placement=protocol.ANY, client_id=1):
    record = protocol.run_record(config(), experiment="e", base_digest="b")
    record = protocol.addressed(record, round_=1, client_id=client_id, placement=placement)
    return protocol.request_content(to_record(model()), record)


def test_a_node_says_hello_with_its_partition():
    assert protocol.hello_reply(ask(protocol.hello_content(), protocol.HELLO, partition=3).content) == 3
    assert protocol.hello_reply(ask(protocol.hello_content(), protocol.HELLO).content) is None


def test_a_run_s_end_ends_the_worker_of_every_deployed_node_and_asks_no_simulated_one(monkeypatch):
    ended = []
    monkeypatch.setattr(remote, "dismiss", ended.append)
    for kind, expected in ((FakeGrid, ["node-5", "node-8"]), (InMemoryGrid, [])):
        farewell(kind(app_nodes(app, {5: 0, 8: 1}), nodes=[5, 8]), timeout_s=5)
        assert ended == expected
        ended.clear()


@pytest.mark.parametrize("kind", ["train", "evaluate", protocol.HELLO, protocol.GOODBYE])
def test_whatever_breaks_is_an_error_reply_of_one_line(kind, caplog):
    content = train_content()
    content["config"]["code-hash"] = "line one\nline two"
    with caplog.at_level(logging.CRITICAL):
        reply = ask(content, kind)
    assert reply.has_error()
    assert reply.error.reason.startswith("ProtocolError: code-hash line one")
    assert "\n" not in reply.error.reason


def test_a_bound_node_refuses_another_client(caplog):
    with caplog.at_level(logging.CRITICAL):
        reply = ask(train_content(protocol.BOUND, client_id=1), "train", partition=0)
    assert "client 1, but this node's partition-id is 0" in reply.error.reason


def test_buckets_that_are_not_whole_are_an_error_reply_of_one_line(caplog):
    content = train_content()
    arrays, content["config"] = protocol.in_form(content["arrays"], ConfigRecord({**content["config"], "shapes": ""}))
    first = arrays["bucket-0"]
    content["arrays"] = ArrayRecord({"bucket-0": Array(first.dtype, first.shape, first.stype, first.data[:-1])})
    with caplog.at_level(logging.CRITICAL):
        reply = ask(content, "train")
    assert reply.error.reason.startswith("ProtocolError: bucket-0 is uint8 of 495 bytes, due are 496")


def test_importing_the_client_app_is_light():
    code = "import sys, client_app.app; print(sorted({'torch', 'transformers', 'trl', 'ray'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
