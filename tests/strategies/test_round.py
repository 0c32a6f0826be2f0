"""A round against a transport that delays, repeats, loses and damages replies."""

import gc
import random
import weakref
from dataclasses import replace

import numpy as np
import pytest
from fakes import NEVER, InMemoryGrid, client, config, model, train
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rounds import BAD, IN_BUCKETS, RUN, Notes, batch_mean, error_reply, fedavg, for_client, play, request_of

from flwr_agent import protocol
from flwr_agent.arrays import digest, from_record, to_record
from flwr_agent.errors import QuorumError
from strategies import FedAvg, FedProx, Status, stream

pytestmark = pytest.mark.usefixtures("task_identity", "no_pause")


@pytest.fixture
def no_pause(monkeypatch):
    monkeypatch.setattr(stream, "POLL_S", 0.0)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.permutations(range(4)), st.integers(0, 2**32))
def test_the_fold_is_the_batch_mean_in_client_order_for_any_arrival(arrival, seed):
    nodes = random.Random(seed).sample(range(100), 4)
    found = play(delay=lambda message: arrival[protocol.client_of(message.content)], nodes=nodes)
    assert found == batch_mean(range(4))


def test_replies_are_pulled_by_ascending_client_though_the_last_comes_first():
    grid = InMemoryGrid(client(), delay=lambda message: 3 - protocol.client_of(message.content))
    fedavg().start(grid, to_record(model()), num_rounds=1, train_config=RUN)
    assert grid.pulled == [message.metadata.message_id for message in grid.sent]
    assert [protocol.client_of(message.content) for message in grid.sent] == [0, 1, 2, 3]


def test_flowers_own_exchange_gives_the_same_bits_in_any_order():
    strategy = fedavg()
    grid = InMemoryGrid(client())
    messages = strategy.configure_train(1, to_record(model()), RUN, grid)
    replies = list(grid.send_and_receive(messages))
    arrays, metrics = strategy.aggregate_train(1, replies[::-1])
    assert digest(from_record(arrays)) == batch_mean(range(4))
    assert metrics["reward"] == 1.5


def test_a_repeated_reply_counts_once():
    notes = Notes()
    found = play(for_client(1, lambda replies: replies * 3), notes=notes)
    assert found == batch_mean(range(4))
    assert [o.status for o in notes.outcomes if o.client_id == 1] == [
        Status.ACCEPTED,
        Status.DUPLICATE,
        Status.DUPLICATE,
    ]


def test_one_client_is_the_model_it_sent():
    assert play(strategy=fedavg(1)) == batch_mean([0])


def test_equal_clients_are_one_client():
    def same(request):
        return replace(train(replace(request, client_id=0)), client_id=request.client_id)

    assert play(client(same), fedavg(7)) == play(strategy=fedavg(1))


def test_weights_by_examples_use_the_rows_each_client_reports():
    found = play(strategy=fedavg(weights="examples"))
    assert found == batch_mean(range(4), lambda reply: reply.num_examples)
    assert found != batch_mean(range(4))


def test_a_client_without_rows_is_refused_when_rows_weigh():
    def idle(request):
        return replace(train(request), num_examples=0 if request.client_id == 2 else 5)

    notes = Notes()
    assert play(client(idle), fedavg(weights="examples"), notes=notes) == batch_mean([0, 1, 3])
    assert "trained on no rows" in notes.outcomes[2].reason
    assert play(client(idle)) == batch_mean(range(4))


def test_the_deadline_skips_what_is_missing_and_still_takes_what_came_meanwhile():
    notes = Notes()
    found = play(timeout=0.05, delay=lambda m: NEVER if protocol.client_of(m.content) == 1 else 0, notes=notes)
    assert found == batch_mean([0, 2, 3])
    assert notes.status()[1] == "missing"
    assert notes.sets == [(1, [0, 2, 3])]


@pytest.mark.parametrize("name", BAD)
def test_a_bad_reply_is_a_ledger_line_and_never_in_the_mean(name):
    notes = Notes()
    assert play(for_client(2, BAD[name]), notes=notes) == batch_mean([0, 1, 3])
    outcome = notes.outcomes[2]
    assert outcome.status is (Status.FAILED if name == "error" else Status.REJECTED)
    assert outcome.reason
    assert "\n" not in outcome.reason


def test_a_bad_reply_followed_by_a_good_one_of_the_same_client_is_made_good():
    def twice(replies):
        bad = Message(RecordDict({"arrays": ArrayRecord()}), reply_to=request_of(replies))
        return [bad, *replies]

    assert play(for_client(2, twice)) == batch_mean(range(4))


def test_a_metric_that_is_not_finite_or_not_there_is_left_out_of_its_mean():
    values = [{"loss": 1.0, "entropy": 4.0}, {"loss": float("nan")}, {"loss": 3.0}, {}]

    def measured(request):
        return replace(train(request), metrics=values[request.client_id])

    notes = Notes()
    play(client(measured), notes=notes)
    assert notes.rounds[0].metrics == {"entropy": 4.0, "loss": 2.0}


def test_too_few_replies_stop_the_run_and_name_every_client():
    notes = Notes()
    serve = for_client(0, BAD["nan"], for_client(3, error_reply))
    with pytest.raises(QuorumError, match=r"2 usable replies.*min_clients=3.*client 0 rejected.*client 3 failed.*boom"):
        play(serve, fedavg(min_clients=3), notes=notes)
    assert notes.status() == {0: "rejected", 1: "accepted", 2: "accepted", 3: "failed"}
    assert notes.sets == []


def test_a_request_the_transport_refuses_is_no_crash():
    notes = Notes()
    assert play(refuse=lambda m: protocol.client_of(m.content) == 1, notes=notes) == batch_mean([0, 2, 3])
    assert notes.status()[1] == "failed"


def test_no_node_at_all_is_a_quorum_error():
    with pytest.raises(QuorumError, match="no node was connected"):
        play(strategy=fedavg(connect_timeout_s=0.01), nodes=[])


def test_fewer_simulated_nodes_than_clients_serve_them_all():
    assert play(nodes=[5]) == batch_mean(range(4))


def test_the_choice_of_clients_does_not_depend_on_the_nodes():
    def chosen(nodes):
        grid = InMemoryGrid(client(), nodes=nodes)
        strategy = FedAvg(total_clients=100, clients_per_round=2, seed=42)
        strategy.start(grid, to_record(model()), num_rounds=3, train_config=RUN)
        return [protocol.client_of(message.content) for message in grid.sent]

    assert chosen([1, 2, 3]) == chosen([9, 4]) == [14, 81, 4, 36, 52, 66]


def test_rounds_are_absolute_and_a_split_run_ends_in_the_same_bits():
    whole = InMemoryGrid(client())
    one = fedavg().start(whole, to_record(model()), num_rounds=3, train_config=RUN)
    first = fedavg().start(InMemoryGrid(client()), to_record(model()), num_rounds=1, train_config=RUN)
    rest = fedavg().start(InMemoryGrid(client()), first.arrays, num_rounds=3, train_config=RUN, first_round=2)
    assert digest(from_record(rest.arrays)) == digest(from_record(one.arrays))
    assert list(rest.train_metrics_clientapp) == [2, 3]


def test_a_replayed_round_asks_the_clients_it_is_told():
    grid = InMemoryGrid(client())
    fedavg().start(grid, to_record(model()), num_rounds=2, train_config=RUN, replay={1: [1, 3]})
    assert [protocol.client_of(message.content) for message in grid.sent] == [1, 3, 0, 1, 2, 3]


def test_evaluation_is_called_before_the_first_round_and_after_each():
    seen = []

    def score(round_, arrays):
        seen.append((round_, digest(from_record(arrays))))
        return MetricRecord({"success": float(round_)})

    result = fedavg().start(
        InMemoryGrid(client()), to_record(model()), num_rounds=2, train_config=RUN, evaluate_fn=score
    )
    assert [round_ for round_, _ in seen] == [0, 1, 2]
    assert seen[0][1] == digest(model())
    assert seen[2][1] == digest(from_record(result.arrays))
    assert result.evaluate_metrics_serverapp[2]["success"] == 2.0


def carried(strategy):
    grid = InMemoryGrid(client())
    strategy.start(grid, to_record(model()), num_rounds=1, train_config=prox_record())
    return [protocol.train_request(message.content, {}).config.strategy.prox_mu for message in grid.sent]


def prox_record():
    return protocol.run_record(config(strategy__name="fedprox"), experiment="run", base_digest="base")


def test_fedprox_carries_its_coefficient_to_every_client_and_changes_nothing_else():
    who = {"total_clients": 2, "clients_per_round": 2}
    assert carried(FedProx(prox_mu=0.25, **who)) == [0.25, 0.25]
    assert play(strategy=FedProx(prox_mu=0.0, **who), record=prox_record()) == play(strategy=fedavg(2))


def test_a_flower_client_that_knows_nothing_of_our_protocol_can_be_averaged():
    def serve(message):
        arrays = {name: np.asarray(array.numpy() + 1) for name, array in message.content["arrays"].items()}
        record = ArrayRecord({name: Array(values) for name, values in arrays.items()})
        return [Message(RecordDict({"arrays": record, "metrics": MetricRecord({"num-examples": 3})}), reply_to=message)]

    result = fedavg(2).start(
        InMemoryGrid(serve), to_record(model()), num_rounds=2, train_config=ConfigRecord({"lr": 0.1})
    )
    moved = from_record(result.arrays)["actor/embed"] - model()["actor/embed"]
    assert moved == pytest.approx(2.0, rel=1e-5)


def test_one_reply_is_alive_while_the_next_is_pulled():
    alive = []

    class Counting(InMemoryGrid):
        def pull_messages(self, message_ids):
            found = super().pull_messages(message_ids)
            gc.collect()
            alive.append(sum(ref() is not None for ref in refs))
            refs.extend(weakref.ref(message) for message in found)
            return found

    refs = []
    fedavg(placement="any").start(Counting(client()), to_record(model()), num_rounds=1, train_config=RUN)
    assert alive == [0, 0, 0, 0]


def test_a_round_in_buckets_is_the_round_by_name():
    assert play(num_rounds=2, record=IN_BUCKETS) == play(num_rounds=2)


def test_a_round_in_buckets_holds_its_model_once_for_all_requests():
    records, held = [to_record(model())], []
    before = weakref.ref(records[0]["actor/embed"])

    def serve(message):
        gc.collect()
        held.append((before(), id(message.content["arrays"])))
        return client()(message)

    fedavg(placement="any").start(InMemoryGrid(serve), records.pop(), num_rounds=1, train_config=IN_BUCKETS)
    assert [old for old, _ in held] == [None] * 4
    assert len({new for _, new in held}) == 1


def test_a_round_reports_bytes_seconds_and_metrics():
    notes = Notes()
    play(notes=notes)
    (round_,) = notes.rounds
    size = to_record(model()).count_bytes()
    assert round_.payload_bytes == {"sent": 4 * size, "received": 4 * size}
    assert set(round_.seconds) == {"place", "send", "receive_and_fold"}
    assert round_.metrics == {"reward": 1.5, "time/rollout": 1.0}
    assert isinstance(notes.outcomes[0].metrics, dict)
