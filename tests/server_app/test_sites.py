"""Evaluation at the sites: who is waited for, for how long, and who is named."""

import logging
from dataclasses import replace

import pytest
from fakes import NEVER, FakeGrid, config, model
from flwr.app import Error, Message

from flwr_agent import protocol
from flwr_agent.arrays import to_record
from flwr_agent.errors import ProtocolError
from flwr_agent.requests import EvaluateReply
from server_app.evaluate import Evaluation
from server_app.ledger import Ledger
from server_app.sites import on_sites
from strategies import nodes, stream

pytestmark = pytest.mark.usefixtures("task_identity", "no_pause")
GONE = Error(5, "Node Unavailable")


@pytest.fixture
def no_pause(monkeypatch):
    monkeypatch.setattr(stream, "POLL_S", 0.0)
    monkeypatch.setattr(nodes, "POLL_S", 0.0)


class Slow(FakeGrid):
    """All but the first node connect after some looks."""

    late = 0

    def get_node_ids(self):
        self.late -= 1
        return self.nodes if self.late < 0 else self.nodes[:1]


def plays(gone=()):
    """Nodes whose partition-id is their node id."""

    def serve(message):
        node = message.metadata.dst_node_id
        if message.metadata.message_type == protocol.HELLO:
            content = protocol.hello_reply_content(message.content, {"partition-id": node})
            return [Message(content, reply_to=message)]
        if node in gone:
            return [Message(GONE, reply_to=message)]
        request = protocol.evaluate_request(message.content)
        reply = EvaluateReply(round=request.round, metrics={"success": 0.5})
        return [Message(protocol.evaluate_reply_content(request, reply), reply_to=message)]

    return serve


def playing(grid, connect=5.0, timeout=5.0, clients=0):
    keys = {"partition__strategy": "site", "evaluation__where": "sites", "federation__total_clients": clients}
    run = config(**keys, federation__clients_per_round=2)
    federation = replace(run.federation, connect_timeout_s=connect, round_timeout_s=timeout)
    record = protocol.run_record(run, experiment="run", base_digest="base")
    return run, on_sites(grid, record, federation)


def score(play, round_=0):
    return play(round_, to_record(model()))


def test_a_site_that_connects_a_little_later_is_waited_for():
    grid = Slow(plays(), nodes=[3, 8])
    grid.late = 3
    assert score(playing(grid)[1]).metrics["clients"] == 2


def test_a_site_of_the_last_evaluation_is_waited_for_and_then_named(caplog):
    grid = Slow(plays(), nodes=[1, 3, 8])
    _, play = playing(grid, connect=0.2)
    score(play)
    grid.late = 3
    assert score(play, 1).metrics["clients"] == 3
    grid.nodes = [1, 3]
    for round_ in (2, 3):
        assert score(play, round_).absent == {8: "is not connected"}
        assert f"round {round_}: client 8 did not evaluate: is not connected" in caplog.text


def test_a_site_that_has_gone_is_not_waited_for_again(monkeypatch):
    grid = Slow(plays(), nodes=[1, 3])
    _, play = playing(grid, connect=0.05)
    score(play)
    grid.nodes = [1]
    score(play, 1)
    monkeypatch.setattr(nodes.time, "sleep", lambda _: pytest.fail("waits"))
    assert score(play, 2).absent == {3: "is not connected"}


def test_a_site_that_never_says_hello_costs_the_connect_timeout_and_not_the_round_s():
    grid = FakeGrid(plays(), nodes=[1, 3], delay=lambda m: NEVER if m.metadata.dst_node_id == 3 else 0)
    started = nodes.time.monotonic()
    assert score(playing(grid, connect=0.05, timeout=30.0, clients=4)[1]).absent == dict.fromkeys(
        (0, 2, 3), "is not connected"
    )
    assert nodes.time.monotonic() - started < 10


def test_who_gave_no_score_stands_in_the_ledger_with_the_reason(tmp_path, caplog):
    def delay(message):
        return NEVER if message.metadata.dst_node_id == 9 and message.metadata.message_type == "evaluate" else 0

    grid = FakeGrid(plays(gone={3}), nodes=[1, 3, 9], delay=delay)
    run, play = playing(grid, timeout=0.1)
    ledger = Ledger(tmp_path)
    with caplog.at_level(logging.WARNING, "flwr.agent"):
        Evaluation(run, ledger, play, done=())(0, to_record(model()))
    line = ledger.lines()[-1]
    assert line["absent"] == {"3": "Node Unavailable", "9": "no answer within 0.1 s"}
    assert "client 9 did not evaluate: no answer within 0.1 s" in caplog.text


def test_without_any_site_there_is_no_score():
    with pytest.raises(ProtocolError, match="no site evaluated round 0; 0 are connected"):
        score(playing(FakeGrid(plays(), nodes=[]), connect=0.01)[1])
