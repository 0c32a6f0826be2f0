from dataclasses import replace

import numpy as np
import pytest
from fakes import InMemoryGrid, config, model, train
from flwr.app import Array, ArrayRecord, Message, RecordDict
from hypothesis import given
from hypothesis import strategies as st
from rounds import fedavg

from flwr_agent import buckets, payload, protocol
from flwr_agent.arrays import digest, from_record, to_record
from flwr_agent.errors import ProtocolError

SHAPES = {name: values.shape for name, values in model().items()}
sizes = st.lists(st.integers(0, 40), max_size=12)


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Two of the three arrays fit into a bucket."""
    monkeypatch.setattr(buckets, "LARGEST", 350)


@given(sizes)
def test_arrays_come_back_in_their_order_bit_for_bit(lengths):
    arrays = {f"w{i}": np.arange(length, dtype="f4") for i, length in enumerate(lengths)}
    joined = buckets.join(to_record(arrays))
    found = buckets.split(joined, {name: values.shape for name, values in arrays.items()}, "none")
    assert list(found) == list(arrays)
    assert digest(from_record(found)) == digest(arrays)
    assert all(
        len(bucket.data) <= max(350, *(len(array.data) for array in found.values())) for bucket in joined.values()
    )


def test_the_number_of_objects_follows_the_bytes_and_not_the_arrays(monkeypatch):
    monkeypatch.undo()
    assert len(buckets.join(to_record({f"w{i}": np.zeros(100, "f4") for i in range(1000)}))) == 1


def test_what_was_joined_is_views_of_the_buckets_afterwards():
    joined = buckets.join(to_record(model()))
    found = from_record(buckets.split(joined, SHAPES, "none"))
    held = [np.frombuffer(bucket.data, np.uint8) for bucket in joined.values()]
    assert all(any(np.shares_memory(values, bytes_) for bytes_ in held) for values in found.values())
    np.testing.assert_array_equal(buckets.split(joined, SHAPES, "none")["actor/embed"].numpy(), model()["actor/embed"])


def test_joining_empties_the_record_only_where_it_is_told_to():
    kept, given_up = to_record(model()), to_record(model())
    assert buckets.join(kept) == buckets.join(given_up, keep_input=False)
    assert (len(kept), len(given_up)) == (3, 0)


def changed(joined, **changes):
    """The first bucket under other claims or bytes."""
    first = joined["bucket-0"]
    claims = {name: getattr(first, name) for name in ("dtype", "shape", "stype", "data")} | changes
    return ArrayRecord({**joined, "bucket-0": Array(*claims.values())})


@pytest.mark.parametrize(
    "damage",
    [
        lambda b: changed(b, data=b["bucket-0"].data[:-1]),
        lambda b: changed(b, data=b["bucket-0"].data + b"I open the fridge"),
        lambda b: changed(b, data=b""),
        lambda b: changed(b, dtype="float32"),
        lambda b: changed(b, stype="numpy.ndarray"),
        lambda b: changed(b, shape=(2**40,)),
        lambda b: changed(b, shape=(1, b["bucket-0"].shape[0])),
        lambda b: ArrayRecord({**b, "bucket-2": b["bucket-0"]}),
        lambda b: ArrayRecord({**b, "actor/embed": to_record(model())["actor/embed"]}),
        lambda b: ArrayRecord({"bucket-1": b["bucket-1"]}),
        lambda b: ArrayRecord({"bucket-1": b["bucket-0"], "bucket-0": b["bucket-1"]}),
        lambda b: to_record(model()),
        lambda b: ArrayRecord(),
    ],
)
def test_other_buckets_than_were_asked_for_are_refused(damage):
    joined = buckets.join(to_record(model()))
    assert len(joined) == 2
    with pytest.raises(ProtocolError, match=r"bucket|missing"):
        buckets.split(damage(joined), SHAPES, "none")


def test_an_array_that_starts_elsewhere_in_its_bucket_is_refused_by_name():
    joined = buckets.join(to_record(model()))
    data = joined["bucket-0"].data
    with pytest.raises(ProtocolError, match="actor/embed"):
        from_record(buckets.split(changed(joined, data=data[1:] + data[:1]), SHAPES, "none"))


def asked(keys):
    record = protocol.run_record(config(**keys), experiment="e", base_digest="b", in_buckets=True)
    arrays, record = protocol.in_form(to_record(model()), record)
    return protocol.request_content(arrays, protocol.addressed(record, round_=1, client_id=0, placement="any"))


@pytest.mark.parametrize("compression", ["none", "bf16", "int8"])
def test_a_reply_in_buckets_is_the_reply_by_name(compression):
    content = asked({"strategy__payload": "delta", "strategy__compression": compression})
    request = protocol.train_request(content, {})
    reply = protocol.train_reply_content(request, train(request))
    expected = payload.unpack(reply["arrays"], compression)
    reply["arrays"] = buckets.join(reply["arrays"], keep_input=False)
    assert digest(protocol.train_reply(reply, content).arrays) == digest(expected)


def swapped(message):
    """A client whose trainer keeps no order, on arrays that only their names tell apart."""
    request = protocol.train_request(message.content, {})
    arrays = {name: values + np.float32(1) for name, values in reversed(request.arrays.items())}
    return Message(protocol.train_reply_content(request, replace(train(request), arrays=arrays)), reply_to=message)


@pytest.mark.usefixtures("task_identity")
def test_a_client_may_answer_in_another_order_than_it_was_asked():
    start = {"actor/b": np.zeros(3, "f4"), "actor/a": np.ones(3, "f4")}
    record = protocol.run_record(config(), experiment="e", base_digest="b", in_buckets=True)
    grid = InMemoryGrid(lambda message: [protocol.answered(message, swapped)])
    found = fedavg(2).start(grid, to_record(start), num_rounds=1, train_config=record).arrays
    assert digest(from_record(found)) == digest({name: values + np.float32(1) for name, values in start.items()})


@pytest.mark.parametrize("names", [(), ("actor/embed",), ("actor/embed", "actor/head.weight", "actor/other")])
@pytest.mark.usefixtures("task_identity")
def test_a_reply_of_other_names_never_leaves_its_client(names):
    other = to_record({name: np.zeros(1, "f4") for name in names})

    def work(message):
        return Message(RecordDict({"arrays": other}), reply_to=message)

    grid = InMemoryGrid(lambda message: [protocol.answered(message, work)])
    with pytest.raises(ProtocolError, match="is missing or was not asked for"):
        list(grid.send_and_receive([Message(asked({}), 7, "train")]))


def test_a_reply_in_buckets_tells_no_more_than_the_manifest():
    content = asked({})
    request = protocol.train_request(content, {})
    reply = protocol.train_reply_content(request, train(request))
    reply["arrays"] = buckets.join(reply["arrays"], keep_input=False)
    reply["config"]["shapes"] = "I open the fridge"
    with pytest.raises(ProtocolError, match="'shapes' is not in the manifest"):
        protocol.train_reply(reply, content)
