import pytest
from fakes import config, model, train
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord

from flwr_agent import manifest, protocol
from flwr_agent.arrays import to_record
from flwr_agent.errors import ProtocolError

INT8 = {"strategy__payload": "delta", "strategy__compression": "int8"}


def exchange(keys=None):
    record = protocol.run_record(config(**(keys or {})), experiment="e", base_digest="b")
    record = protocol.addressed(record, round_=1, client_id=0, placement="any")
    asked = protocol.request_content(to_record(model()), record)
    request = protocol.train_request(asked, {})
    return asked, protocol.train_reply_content(request, train(request))


def replaced(content, name, **changes):
    content[name] = type(content[name])({**content[name], **changes})
    return content


@pytest.mark.parametrize("keys", [{}, INT8])
def test_the_manifest_lists_every_array_with_the_bytes_that_are_sent(keys):
    asked, reply = exchange(keys)
    shapes = {name: values.shape for name, values in model().items()}
    lines = manifest.lines(shapes, config(**keys).strategy.compression)
    total = sum(len(array.data) for array in reply["arrays"].values())
    assert f"3 arrays ({total:,} bytes)" in lines[0]
    for name, array in reply["arrays"].items():
        assert f"array {name}: {array.dtype}, {len(array.data):,} bytes" in lines
    protocol.train_reply(reply, asked)


@pytest.mark.parametrize(
    ("tell", "name"),
    [
        (lambda c: c.update({"transcript": ConfigRecord({"text": "I open the fridge"})}), "transcript"),
        (lambda c: replaced(c, "config", prompt="I open the fridge"), "prompt"),
        (lambda c: replaced(c, "metrics", first_token=42), "first_token"),
        (lambda c: replaced(c, "metrics", loss=[1.0, 2.0]), "loss"),
        (lambda c: replaced(c, "arrays", extra=Array(model()["actor/embed"])), "extra"),
    ],
)
def test_a_reply_that_tells_more_than_the_manifest_is_refused_by_name(tell, name):
    asked, reply = exchange()
    tell(reply)
    with pytest.raises(ProtocolError, match=f"{name}.*not in the manifest of what leaves a client"):
        protocol.train_reply(reply, asked)


def test_an_array_of_other_bytes_is_refused():
    asked, reply = exchange()
    array = reply["arrays"]["actor/embed"]
    padded = Array(array.dtype, array.shape, array.stype, array.data + b"I open the fridge")
    reply["arrays"] = ArrayRecord({**reply["arrays"], "actor/embed": padded})
    with pytest.raises(ProtocolError, match=r"actor/embed \(float32, 193 bytes\) is not in the manifest"):
        protocol.train_reply(reply, asked)


def test_a_number_that_is_not_listed_stays_with_its_client(caplog):
    record = protocol.addressed(
        protocol.run_record(config(), experiment="e", base_digest="b"), round_=1, client_id=0, placement="any"
    )
    request = protocol.train_request(protocol.request_content(to_record(model()), record), {})
    reply = train(request)
    content = protocol.train_reply_content(
        request, type(reply)(**{**reply_fields(reply), "metrics": {"reward": 1.0, "secret": 2.0}})
    )
    assert dict(content["metrics"]) == {"num-examples": 10, "reward": 1.0}
    assert "not sent, as flwr_agent/manifest.py does not list it: secret" in caplog.text


def reply_fields(reply):
    return {name: getattr(reply, name) for name in ("round", "client_id", "arrays", "num_examples", "metrics")}


def test_records_are_of_the_types_that_flower_averages():
    _, reply = exchange()
    assert isinstance(reply["metrics"], MetricRecord)
