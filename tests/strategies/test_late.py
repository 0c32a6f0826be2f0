"""Replies that miss their round and count in a later one."""

from dataclasses import dataclass, field

import numpy as np
import pytest
from fakes import InMemoryGrid, client, model, train
from rounds import IN_BUCKETS, RUN, Notes, fedavg
from rounds import play as play_round

from flwr_agent import protocol
from flwr_agent.arrays import digest, from_record, to_record
from strategies import FedAvg, LateFedAvg, stream

pytestmark = pytest.mark.usefixtures("task_identity", "no_pause")
ASKED = {"total_clients": 3, "clients_per_round": 3, "placement": "any"}


@pytest.fixture
def no_pause(monkeypatch):
    monkeypatch.setattr(stream, "POLL_S", 0.0)


@dataclass
class Tardy(InMemoryGrid):
    """Shows the reply to client 1's request of round 1 no earlier than in round `until`."""

    until: int = 2
    round: int = field(default=1)

    def push_messages(self, messages):
        messages = list(messages)
        self.round = int(messages[0].metadata.group_id)
        return super().push_messages(messages)

    def pull_messages(self, message_ids):
        late = {
            m.metadata.message_id
            for m in self.sent
            if protocol.client_of(m.content) == 1 and m.metadata.group_id == "1"
        }
        return super().pull_messages([i for i in message_ids if i not in late or self.round >= self.until])


def play(strategy, grid, num_rounds, record=RUN):
    notes = Notes()
    result = strategy.start(
        grid, to_record(model()), num_rounds=num_rounds, timeout=0.3, train_config=record, observer=notes
    )
    return from_record(result.arrays), notes


def first_round_only(server_round):
    """Client 1 is asked in round 1 alone, so that it has nothing in time later."""
    return [0, 1] if server_round == 1 else [0]


def late(**options):
    return LateFedAvg(**(ASKED | options))


def test_in_time_it_is_fedavg():
    assert play_round(strategy=late(), num_rounds=2) == play_round(strategy=fedavg(3), num_rounds=2)


def told(notes, client_id):
    return [(o.round, str(o.status), o.reason) for o in notes.outcomes if o.client_id == client_id]


@pytest.mark.parametrize(("power", "rounds"), [(0.5, 1), (0.5, 2), (0.0, 1), (1.0, 1)])
def test_a_late_reply_moves_the_model_by_its_discounted_share(power, rounds):
    strategy = late(staleness_power=power)
    strategy.choose = first_round_only
    found, notes = play(strategy, Tardy(client(), until=1 + rounds), 1 + rounds)
    before = model()
    at = [before]
    for round_ in range(1, 1 + rounds):
        at.append(trained(at[-1], round_, 0))
    movement = {n: trained(before, 1, 1)[n] - before[n] for n in before}
    in_time = trained(at[rounds], 1 + rounds, 0)
    share = np.float32((1 + rounds) ** -power)
    for name, values in found.items():
        expected = (in_time[name] + at[rounds][name] + share * movement[name]) / 2
        assert values == pytest.approx(expected, rel=1e-5, abs=1e-6)
    assert told(notes, 1) == [
        (1, "missing", "no reply before the deadline"),
        (1 + rounds, "accepted", f"{rounds} rounds late"),
    ]
    assert notes.sets[-1] == (1 + rounds, [0, 1])


def trained(arrays, round_, client_id):
    record = protocol.addressed(RUN, round_=round_, client_id=client_id, placement="any")
    return train(protocol.train_request(protocol.request_content(to_record(dict(arrays)), record), {})).arrays


def test_a_late_reply_in_buckets_moves_the_model_by_the_same_bits():
    found = []
    for record in (RUN, IN_BUCKETS):
        strategy = late()
        strategy.choose = first_round_only
        arrays, notes = play(strategy, Tardy(client()), 2, record)
        found.append(digest(arrays))
        assert told(notes, 1)[-1] == (2, "accepted", "1 rounds late")
    assert found[0] == found[1]


def test_later_than_the_bound_is_dropped():
    strategy = late(max_staleness=1)
    strategy.choose = first_round_only
    found, notes = play(strategy, Tardy(client(), until=3), 3)
    plain = FedAvg(**ASKED)
    plain.choose = lambda _: [0]
    expected, _ = play(plain, InMemoryGrid(client()), 3)
    assert digest(found) == digest(expected)
    assert [status for _, status, _ in told(notes, 1)] == ["missing"]


def test_a_client_that_answered_in_time_is_not_counted_twice():
    found, notes = play(late(), Tardy(client(), until=2), 2)
    second = [(status, reason) for round_, status, reason in told(notes, 1) if round_ == 2]
    assert second == [("accepted", ""), ("duplicate", "1 rounds late, and answered in this one")]
    assert notes.sets[-1] == (2, [0, 1, 2])
    expected, _ = play(fedavg(3, placement="any"), Tardy(client(), until=99), 2)
    assert digest(found) == digest(expected)


def test_a_late_reply_that_is_malformed_is_rejected():
    def damaged(message):
        replies = client()(message)
        if protocol.client_of(message.content) == 1 and message.metadata.group_id == "1":
            del replies[0].content["metrics"]
        return replies

    strategy = late()
    strategy.choose = first_round_only
    _, notes = play(strategy, Tardy(damaged, until=2), 2)
    assert [(round_, status) for round_, status, _ in told(notes, 1)] == [(1, "missing"), (2, "rejected")]
    assert notes.sets[-1] == (2, [0])
