"""A thousand malformed replies: none stops the server, none is averaged, each is a line of the ledger with its reason."""

import json
import math

import numpy as np
import pytest
from fakes import InMemoryGrid, config, model
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from flwr_agent import buckets, protocol
from flwr_agent.arrays import digest, load, to_record
from flwr_agent.requests import InitialModel
from server_app.run import run
from strategies import stream
from strategies.aggregate import Mean

pytestmark = pytest.mark.usefixtures("task_identity", "no_pause")
HOSTILE, EXAMPLES = 50, 20
text = st.text(max_size=8)
numbers = st.integers(-(2**63), 2**63 - 1) | st.floats()


@pytest.fixture
def no_pause(monkeypatch):
    monkeypatch.setattr(stream, "POLL_S", 0.0)


@pytest.fixture(autouse=True)
def two_buckets(monkeypatch):
    monkeypatch.setattr(buckets, "LARGEST", 350)


def honest(asked, values):
    """A sound reply to a request, but that its arrays are not in buckets yet."""
    echo = {key: asked["config"][key] for key in ("experiment", "server-round", "client-id")}
    return RecordDict(
        {"arrays": to_record(values), "config": ConfigRecord(echo), "metrics": MetricRecord({"num-examples": 7})}
    )


def in_buckets(content):
    if isinstance(content.get("arrays"), ArrayRecord):
        content["arrays"] = buckets.join(content["arrays"])
    return content


# What one client answers: a function from its honest reply and a draw to a reply that must not be used. It is damaged
# before its arrays go into buckets, or after.


def without(content, draw):
    del content[draw(st.sampled_from(["arrays", "config", "metrics"]))]


def other_kind(content, draw):
    name = draw(st.sampled_from(["arrays", "config", "metrics"]))
    kinds = {"arrays": ArrayRecord(), "config": ConfigRecord({"x": 1}), "metrics": MetricRecord({"y": 2.0})}
    content[name] = draw(st.sampled_from([record for kind, record in kinds.items() if kind != name]))


def random_records(content, draw):
    content.clear()
    for name in draw(st.lists(st.sampled_from(["arrays", "config", "metrics", ""]) | text, max_size=4)):
        content[name] = draw(
            st.builds(ConfigRecord, st.dictionaries(text, numbers | text | st.booleans(), max_size=3))
            | st.builds(MetricRecord, st.dictionaries(text, numbers, max_size=3))
        )


def wrong_value(content, draw):
    name = draw(st.sampled_from(sorted(content["arrays"])))
    values = np.array(content["arrays"][name].numpy())
    values.reshape(-1)[draw(st.integers(0, values.size - 1))] = draw(st.sampled_from([math.nan, math.inf, -math.inf]))
    content["arrays"][name] = Array(values)


def wrong_shape(content, draw):
    name = draw(st.sampled_from(sorted(content["arrays"])))
    shape = draw(st.lists(st.integers(0, 4), max_size=4).filter(lambda s: tuple(s) != content["arrays"][name].shape))
    content["arrays"][name] = Array(np.zeros(shape, "f4"))


def wrong_type(content, draw):
    name, kind = (
        draw(st.sampled_from(sorted(content["arrays"]))),
        draw(st.sampled_from(["f8", "f2", "i4", "u1", "?", ">f4", "c8", "U3"])),
    )
    content["arrays"][name] = Array(np.zeros(content["arrays"][name].shape, kind))


def wrong_bytes(content, draw):
    name = draw(st.sampled_from(sorted(content["arrays"])))
    array = content["arrays"][name]
    data = draw(
        st.binary(max_size=200)
        | st.integers(0, len(array.data) - 1).map(lambda cut: array.data[:cut])
        | st.binary(min_size=1, max_size=20).map(lambda more: array.data + more)
    )
    content["arrays"][name] = Array(array.dtype, array.shape, array.stype, data)


def wrong_claim(content, draw):
    name = draw(st.sampled_from(sorted(content["arrays"])))
    array = content["arrays"][name]
    sizes = st.lists(st.integers(-(2**62), 2**62), max_size=40).filter(lambda sizes: tuple(sizes) != array.shape)
    shape = tuple(draw(sizes))
    claims = [
        (array.dtype, shape, array.stype),
        ("object", array.shape, array.stype),
        ("float32", array.shape, "pickle"),
    ]
    content["arrays"][name] = Array(*draw(st.sampled_from(claims)), array.data)


def other_names(content, draw):
    arrays = dict(content["arrays"])
    if draw(st.booleans()):
        del arrays[draw(st.sampled_from(sorted(arrays)))]
    else:
        arrays[draw(text.filter(lambda name: name not in arrays))] = Array(np.zeros(2, "f4"))
    content["arrays"] = ArrayRecord(arrays)


def other_request(content, draw):
    key = draw(st.sampled_from(["server-round", "client-id", "experiment"]))
    if draw(st.booleans()):
        del content["config"][key]
    else:
        content["config"][key] = draw((numbers | text | st.booleans()).filter(lambda v: v != content["config"][key]))


def wrong_count(content, draw):
    bad = st.integers(-(2**63), -1) | st.integers(2**53 + 1, 2**63 - 1) | st.floats() | st.lists(st.integers(0, 9))
    content["metrics"]["num-examples"] = draw(bad)


def by_name(content, draw):
    content["arrays"] = to_record(model(draw(st.integers(0, 9))))


EITHER = (
    *(without, other_kind, random_records, wrong_shape, wrong_type, wrong_bytes, other_names, other_request),
    wrong_count,
)
BEFORE, AFTER = (wrong_value, *EITHER), (wrong_claim, by_name, *EITHER)
DAMAGE = [*((damage, True) for damage in BEFORE), *((damage, False) for damage in AFTER)]


@st.composite
def hostile(draw):
    """Damage to be done to an honest reply, and whatever else may stand in it."""
    damage, is_before = draw(st.sampled_from(DAMAGE))
    extra = draw(st.dictionaries(text, numbers, max_size=2))

    def reply(content):
        if is_before:
            damage(content, draw)
        in_buckets(content)
        if not is_before:
            damage(content, draw)
        metrics = content.get("metrics")
        if isinstance(metrics, MetricRecord):
            for name, value in extra.items():
                metrics.setdefault(name, value)
        return content

    reply.name = damage.__name__
    return reply


@settings(max_examples=EXAMPLES, phases=[Phase.reuse, Phase.generate], suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_no_malformed_reply_stops_the_server_or_is_averaged_and_each_is_told(data, tmp_path_factory):
    replies = data.draw(st.lists(hostile(), min_size=HOSTILE, max_size=HOSTILE))

    def serve(message):
        client_id = protocol.client_of(message.content)
        content = honest(message.content, model(client_id))
        content = replies[client_id](content) if client_id < HOSTILE else in_buckets(content)
        return [Message(content, reply_to=message)]

    folder = tmp_path_factory.mktemp("run") / "run"
    clients = HOSTILE + 2
    keys = {"federation__total_clients": clients, "federation__clients_per_round": clients, "federation__rounds": 1}
    settings_ = config(output_dir=str(folder), evaluation__where="off", federation__retries=0, **keys)
    run(
        settings_,
        InMemoryGrid(serve),
        initial_model=lambda _: InitialModel(arrays=model(), base_digest=""),
        serve=pytest.fail,
    )
    lines = [json.loads(line) for line in (folder / "ledger.jsonl").read_text().splitlines()]
    told = {line["client_id"]: line for line in lines if line["kind"] == "client"}
    for client_id in range(HOSTILE):
        assert told[client_id]["status"] == "rejected", replies[client_id].name
        assert told[client_id]["reason"]
    assert [line["clients"] for line in lines if line["kind"] == "accepted"] == [[HOSTILE, HOSTILE + 1]]
    mean = Mean()
    for client_id in (HOSTILE, HOSTILE + 1):
        mean.add(model(client_id), 1.0)
    assert digest(load(folder / "round-00001" / "model.safetensors")) == digest(mean.value())
