"""Flower's own mods around our clients."""

import logging
from dataclasses import replace

import numpy as np
import pytest
from fakes import InMemoryGrid, app_nodes, config, model, train
from flwr.app import Context, Message, RecordDict
from policies import guessing

from client_app import mods
from client_app.app import app
from flwr_agent import protocol
from flwr_agent.arrays import digest, from_record, to_record
from flwr_agent.rl.learner import initial_arrays
from strategies import FedAvg, Observer, Status, stream

pytestmark = pytest.mark.usefixtures("task_identity", "no_pause")
CLIP = {"privacy__mods": "fixedclipping", "privacy__clip": 0.25}
LOCAL = {"privacy__mods": "localdp", "privacy__clip": 0.25, "privacy__local_epsilon": 1e9}


@pytest.fixture
def no_pause(monkeypatch):
    monkeypatch.setattr(stream, "POLL_S", 0.0)


class Notes(Observer):
    def __init__(self):
        self.outcomes = []

    def answered(self, outcome):
        self.outcomes.append(outcome)


def start():
    return {name: values for name, values in model().items() if values.shape}


def inner(message, context):
    """A client that moves far."""
    request = protocol.train_request(message.content, {})
    far = {name: values + np.float32(3) for name, values in request.arrays.items()}
    return Message(protocol.train_reply_content(request, replace(train(request), arrays=far)), reply_to=message)


def played(node_config=None, notes=None, in_buckets=False, **keys):
    run = config(**keys)
    context = Context(1, 5, node_config or {}, RecordDict(), {})

    def serve(message):
        return [protocol.answered(message, lambda asked: mods.apply(asked, context, inner))]

    record = protocol.run_record(run, experiment="e", base_digest="b", in_buckets=in_buckets)
    result = FedAvg.from_config(run).start(
        InMemoryGrid(serve), to_record(start()), num_rounds=1, train_config=record, observer=notes
    )
    return from_record(result.arrays)


def moved(arrays):
    return float(np.sqrt(sum(np.square(values - start()[name], dtype="f8").sum() for name, values in arrays.items())))


def test_without_mods_a_client_sends_what_it_has_learnt():
    assert moved(played()) > 10


@pytest.mark.parametrize("names", ["fixedclipping", "adaptiveclipping", "fixedclipping, adaptiveclipping", "localdp"])
def test_a_mod_clips_the_whole_update_of_a_client(names):
    keys = LOCAL if names == "localdp" else CLIP | {"privacy__mods": names}
    assert moved(played(**keys)) == pytest.approx(0.25, rel=1e-3)


def test_a_mod_sees_arrays_by_name_also_where_they_come_in_buckets():
    assert digest(played(in_buckets=True, **CLIP)) == digest(played(**CLIP))


def test_adaptive_clipping_tells_whether_it_has_clipped():
    notes = Notes()
    played(notes=notes, **CLIP | {"privacy__mods": "adaptiveclipping"})
    assert [outcome.metrics["norm_bit"] for outcome in notes.outcomes] == [1.0, 1.0]


def test_local_noise_has_the_deviation_of_its_epsilon():
    noisy = played(**LOCAL | {"privacy__local_epsilon": 2.0, "privacy__clip": 100.0})
    sigma = 2 * 100.0 * np.sqrt(2 * np.log(1.25 / 1e-5)) / 2.0 / np.sqrt(2)
    noise = np.concatenate([(values - start()[name] - 3).reshape(-1) for name, values in noisy.items()])
    assert noise.std() == pytest.approx(sigma, rel=0.5)


def test_a_site_has_its_own_mods_whatever_the_run_says():
    site = {"partition-id": 0, "privacy.mods": "fixedclipping", "privacy.clip": 0.125}
    assert moved(played(site)) == pytest.approx(0.125, rel=1e-3)
    assert moved(played(site, **LOCAL)) == pytest.approx(0.125, rel=1e-3)


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    return guessing(tmp_path_factory.mktemp("policy"))


@pytest.mark.parametrize("names", ["fixedclipping", "localdp"])
def test_federated_grpo_learns_within_a_mod(keys, names):
    run = config(**keys, privacy__mods=names, privacy__clip=1e-3)
    arrays, notes = initial_arrays(run), Notes()
    record = protocol.run_record(run, experiment="e", base_digest=digest(arrays), in_buckets=True)
    result = FedAvg.from_config(run).start(
        InMemoryGrid(app_nodes(app, {11: None, 7: None})),
        to_record(arrays),
        num_rounds=1,
        timeout=600,
        train_config=record,
        observer=notes,
    )
    assert [outcome.status for outcome in notes.outcomes] == [Status.ACCEPTED] * 2, notes.outcomes
    new = from_record(result.arrays)
    length = float(np.sqrt(sum(np.square(new[name] - values, dtype="f8").sum() for name, values in arrays.items())))
    assert length > 0
    assert names != "fixedclipping" or length <= 1.01e-3


@pytest.mark.parametrize(
    ("site", "reason"),
    [
        ({"privacy.mods": "secret"}, "ConfigError: privacy.mods='secret': no such mod"),
        ({"privacy.mods": "localdp"}, "ConfigError: privacy.mods='localdp': Flower's mods clip the difference"),
        ({"privacy.mods": "localdp", "privacy.clip": -1.0}, "ConfigError: privacy.clip=-1.0: must be at least"),
        ({"privacy.mod": "localdp"}, "ConfigError: privacy.mod='localdp': is no setting of a site"),
    ],
)
def test_a_site_whose_mods_cannot_be_applied_sends_no_weights_and_says_why(site, reason, caplog):
    record = protocol.run_record(config(strategy__payload="delta"), experiment="e", base_digest="b")
    record = protocol.addressed(record, round_=1, client_id=0, placement=protocol.ANY)
    grid = InMemoryGrid(
        lambda message: [app(message, Context(1, 5, site, RecordDict(), {}))],
        nodes=[5],
    )
    with caplog.at_level(logging.CRITICAL):
        (reply,) = grid.send_and_receive([Message(protocol.request_content(to_record(start()), record), 5, "train")])
    assert reply.error.reason.startswith(reason)
