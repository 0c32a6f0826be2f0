"""Who is asked again, who is asked besides, and what that leaves of the bits."""

import re
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest
from fakes import NEVER, InMemoryGrid, client, model, train
from flwr.app import Error, Message
from flwr.proto.node_pb2 import NodeInfo
from rounds import BAD, RUN, Notes, batch_mean, fedavg, for_client, play

from flwr_agent import protocol
from flwr_agent.arrays import digest, from_record, to_record
from flwr_agent.errors import QuorumError
from flwr_agent.seeds import choose_clients, extra_clients
from strategies import FedAvg, stall, stream

pytestmark = pytest.mark.usefixtures("task_identity", "no_pause")


@pytest.fixture
def no_pause(monkeypatch):
    monkeypatch.setattr(stream, "POLL_S", 0.0)


def at_first(client_id, change):
    """Let `change` rewrite only the first reply to one client."""
    honest, asked = client(), []

    def serve(message):
        replies = honest(message)
        if protocol.client_of(message.content) != client_id:
            return replies
        asked.append(message.metadata.dst_node_id)
        return change(replies) if len(asked) == 1 else replies

    return serve, asked


def statuses(notes, client_id):
    return [(outcome.attempt, str(outcome.status)) for outcome in notes.outcomes if outcome.client_id == client_id]


@pytest.mark.parametrize("name", ["error", "nan", "wrong shape", "wrong round"])
def test_a_client_whose_reply_cannot_be_used_is_asked_once_more_and_nothing_else_changes(name):
    serve, asked = at_first(1, BAD[name])
    notes = Notes()
    assert play(serve, fedavg(retries=1), notes=notes) == batch_mean(range(4))
    assert statuses(notes, 1)[0][0] == 1
    assert statuses(notes, 1)[0][1] in ("failed", "rejected")
    assert statuses(notes, 1)[1] == (2, "accepted")
    assert notes.sets == [(1, [0, 1, 2, 3])]
    assert len(asked) == 2
    assert asked[0] != asked[1], "another node, where any node serves any client"


def test_a_client_that_fails_again_is_left_out_and_both_failures_are_told():
    notes = Notes()
    found = play(for_client(1, BAD["error"]), fedavg(retries=1), notes=notes)
    assert found == batch_mean([0, 2, 3])
    assert statuses(notes, 1) == [(1, "failed"), (2, "failed")]
    with pytest.raises(QuorumError) as caught:
        play(for_client(1, BAD["error"]), fedavg(retries=1, min_clients=4))
    assert str(caught.value).count("client 1 failed") == 1


def test_a_retry_that_is_not_answered_ends_with_the_round():
    serve, _ = at_first(1, BAD["error"])
    notes, asked = Notes(), []

    def delay(message):
        asked.append(protocol.client_of(message.content))
        return NEVER if asked.count(1) == 2 and asked[-1] == 1 else 0

    assert play(serve, fedavg(retries=1), notes=notes, delay=delay, timeout=2.0) == batch_mean([0, 2, 3])
    assert statuses(notes, 1) == [(1, "failed"), (2, "missing")]


def test_a_request_that_the_transport_refuses_is_sent_again():
    refused = []

    def refuse(message):
        refused.append(protocol.client_of(message.content))
        return refused[-1] == 3 and refused.count(3) == 1

    assert play(strategy=fedavg(retries=1), refuse=refuse) == batch_mean(range(4))
    refused.clear()
    strategy = fedavg(5, clients_per_round=4, extra_clients=1, retries=1, seed=5)
    slow = next(client for client in range(4) if client != 3)
    delay = lambda m: NEVER if protocol.client_of(m.content) == slow else 0  # noqa: E731
    assert play(strategy=strategy, refuse=refuse, delay=delay) == batch_mean([c for c in range(5) if c != slow])


def test_replies_fold_in_client_order_though_a_retry_comes_last():
    serve, _ = at_first(0, BAD["error"])
    notes = Notes()
    play(serve, fedavg(retries=1), notes=notes, delay=lambda m: 5 - protocol.client_of(m.content))
    assert notes.sets == [(1, [0, 1, 2, 3])]


def six(**options):
    return FedAvg(**({"total_clients": 6, "clients_per_round": 3, "extra_clients": 2, "seed": 7} | options))


def asked_by(strategy, **transport):
    grid = InMemoryGrid(client(), **transport)
    notes = Notes()
    result = strategy.start(grid, to_record(model()), num_rounds=1, timeout=1.0, train_config=RUN, observer=notes)
    return [protocol.client_of(message.content) for message in grid.sent], notes, digest(from_record(result.arrays))


def test_extra_clients_come_from_a_stream_of_their_own():
    asked, _, _ = asked_by(six())
    chosen = choose_clients(7, 1, 6, 3)
    assert sorted(set(asked) - set(chosen)) == extra_clients(7, 1, 6, chosen, 2)
    assert set(chosen) < set(asked)
    assert six(extra_clients=0).choose(1) == six().choose(1) == chosen


def test_extra_clients_differ_by_round_and_never_repeat_a_chosen_one():
    found = [extra_clients(7, r, 100, choose_clients(7, r, 100, 10), 5) for r in range(1, 30)]
    assert len({tuple(extra) for extra in found}) == 29
    for r, extra in enumerate(found, start=1):
        assert extra == sorted(set(extra))
        assert not set(extra) & set(choose_clients(7, r, 100, 10))


def test_the_first_usable_replies_count_and_fold_in_client_order():
    chosen = choose_clients(7, 1, 6, 3)
    slow = chosen[0]
    asked, notes, found = asked_by(six(), delay=lambda m: 10 - protocol.client_of(m.content) * (m is not None))
    accepted = notes.sets[0][1]
    assert accepted == sorted(asked)[-3:], "the last clients answer first here"
    assert found == batch_mean(accepted)
    assert notes.status()[min(asked)] == "spare"
    _, notes, found = asked_by(six(), delay=lambda m: NEVER if protocol.client_of(m.content) == slow else 0)
    assert len(notes.sets[0][1]) == 3
    assert slow not in notes.sets[0][1]
    assert found == batch_mean(notes.sets[0][1])


def test_too_few_of_all_that_were_asked_still_make_a_round_and_are_told():
    fine = choose_clients(7, 1, 6, 3)[1]
    asked, notes, found = asked_by(six(), delay=lambda m: 0 if protocol.client_of(m.content) == fine else NEVER)
    assert notes.sets == [(1, [fine])]
    assert {notes.status()[client] for client in asked if client != fine} == {"missing"}
    assert found == batch_mean([fine])


def test_a_failed_client_is_asked_again_while_others_are_waited_for():
    def failing(message):
        replies = client()(message)
        first = failing.failed is False and protocol.client_of(message.content) == failing.who
        failing.failed |= first
        return [Message(Error(2, "boom"), reply_to=message)] if first else replies

    failing.failed, failing.who = False, choose_clients(7, 1, 6, 3)[0]
    notes = Notes()
    play(failing, six(retries=1, extra_clients=1), notes=notes)
    assert statuses(notes, failing.who)[0] == (1, "failed")
    assert len(notes.sets[0][1]) == 3


def test_a_replayed_round_asks_no_extra_clients():
    grid = InMemoryGrid(client())
    six().start(grid, to_record(model()), num_rounds=1, train_config=RUN, replay={1: [0, 5]})
    assert [protocol.client_of(message.content) for message in grid.sent] == [0, 5]


def test_a_client_on_its_own_is_asked_in_every_round():
    strategy = FedAvg(total_clients=100, clients_per_round=2, only_client=42, seed=1)
    grid = InMemoryGrid(client())
    strategy.start(grid, to_record(model()), num_rounds=3, train_config=RUN)
    assert [protocol.client_of(message.content) for message in grid.sent] == [42, 42, 42]


def test_what_is_lost_for_good_stays_lost_in_a_round_of_one():
    def once(request):
        return train(request)

    with pytest.raises(QuorumError, match="client 0 failed: boom"):
        play(lambda message: [Message(Error(2, "boom"), reply_to=message)], fedavg(1, retries=1))
    assert play(client(once), fedavg(1, retries=1)) == batch_mean([0])


@dataclass
class Deployed(InMemoryGrid):
    """A grid that knows when it last heard of a node."""

    def get_nodes(self):
        return [NodeInfo(node_id=11, online_until=time.time() + 48, heartbeat_interval=30)]


@pytest.mark.parametrize("extra", [0, 1])
def test_a_round_that_hangs_says_for_whom_and_when_the_node_was_last_heard_of(monkeypatch, caplog, extra):
    monkeypatch.setattr(stall, "STALL_S", 0.0)
    monkeypatch.setattr(stream, "POLL_S", 0.01)
    caplog.set_level("WARNING")
    strategy = FedAvg(total_clients=3, clients_per_round=2, extra_clients=extra, seed=3, placement="any")
    grid = Deployed(client(), delay=lambda message: NEVER)
    with pytest.raises(QuorumError):
        strategy.start(grid, to_record(model()), num_rounds=1, timeout=1.0, train_config=RUN)
    said = [record.getMessage() for record in caplog.records if "waits since" in record.getMessage()]
    first, second, *_ = sorted(choose_clients(3, 1, 3, 2) if not extra else range(3))
    assert re.search(rf"^train of round 1 waits since \d+ s for .*client {first} \(node 7, not connected\)", said[0])
    if extra:  # in the order of the fold only the next one is known to be silent
        assert re.search(rf"client {second} \(node 11, last heartbeat 1\d s ago\)", said[0])


def test_a_flower_that_tells_no_heartbeats_still_says_for_whom_it_waits(monkeypatch, caplog):
    monkeypatch.setattr(stall, "STALL_S", 0.0)
    asked = [Message(protocol.hello_content(), node, protocol.HELLO) for node in (7, 11)]
    stall.Stall(SimpleNamespace(get_node_ids=lambda: [11]))(asked)
    assert "for node 7 (not connected), node 11 (connected)" in caplog.text


class Forgetful(Deployed):
    """A grid whose nodes start anew before anybody asks about them, and lose what was sent before."""

    def get_nodes(self):
        self.up = getattr(self, "up", datetime.now(UTC).isoformat())
        return [NodeInfo(node_id=node, last_activated_at=self.up, heartbeat_interval=30) for node in self.nodes]


@pytest.mark.parametrize("extra", [0, 1])
def test_what_a_node_started_anew_has_forgotten_is_asked_again_long_before_the_deadline(monkeypatch, extra):
    monkeypatch.setattr(stall, "STALL_S", 0.0)
    notes, asked = Notes(), set()

    def delay(message):
        who, size = protocol.client_of(message.content), len(asked)
        asked.add(who)
        return NEVER if len(asked) > size else 0

    strategy = FedAvg(total_clients=3, clients_per_round=2, extra_clients=extra, seed=3, placement="any", retries=1)
    grid = Forgetful(client(), delay=delay)
    strategy.start(grid, to_record(model()), num_rounds=1, timeout=3600.0, train_config=RUN, observer=notes)
    assert {(o.attempt, str(o.status)) for o in notes.outcomes} >= {(1, "failed"), (2, "accepted")}
    assert {o.reason for o in notes.outcomes if o.attempt == 1} == {stall.FORGOTTEN}
    assert len(notes.sets[0][1]) == 2


def test_a_request_to_a_node_that_was_up_before_it_is_waited_for(monkeypatch):
    monkeypatch.setattr(stall, "STALL_S", 0.0)
    asked = Message(protocol.hello_content(), 11, protocol.HELLO)
    up = {"before": asked.metadata.created_at - 1, "after": asked.metadata.created_at + 1}
    lost = {}
    for when, seconds in up.items():
        node = NodeInfo(node_id=11, last_activated_at=datetime.fromtimestamp(seconds, UTC).isoformat())
        lost[when] = stall.Stall(SimpleNamespace(get_nodes=lambda node=node: [node]))([asked])
    assert not lost["before"]
    assert [(m.has_error(), m.error.reason) for m in lost["after"]] == [(True, stall.FORGOTTEN)]
