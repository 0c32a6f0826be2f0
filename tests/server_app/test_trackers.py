"""Trackers: TensorBoard for real, a third party's module that fails."""

import importlib
import struct
import sys
import types

import pytest
from fakes import config
from ledgers import client, evaluation, finished

from flwr_agent import tracking
from flwr_agent.errors import ConfigError
from server_app.trackers import Sinks, to_values


def scalars(folder):
    """(step, name) -> value of an event file: records of length, checksum, event, checksum."""
    events = importlib.import_module("tensorboardX.proto.event_pb2")
    (file,) = folder.glob("tensorboard/events.out.tfevents.*")
    data, found = file.read_bytes(), {}
    while data:
        (length,) = struct.unpack("<Q", data[:8])
        event = events.Event.FromString(data[12 : 12 + length])
        found |= {(event.step, value.tag): value.simple_value for value in event.summary.value}
        data = data[16 + length :]
    return found


def test_tensorboard_holds_the_figures_of_a_run(tmp_path):
    sinks = Sinks(config(report__trackers="tensorboard"), tmp_path)
    for line in (evaluation(0, 2), client(1, 3, 0.5), finished(1), evaluation(1, 4), {"kind": "resume", "round": 1}):
        sinks.take(line)
    sinks.close()
    found = scalars(tmp_path)
    assert (found[0, "held_out/success"], found[1, "held_out/success"]) == (0.25, 0.5)
    assert (found[1, "client-3/success"], found[1, "train/reward"], found[1, "bytes/sent"]) == (0.5, 5.0, 2_000_000)


def test_a_failed_client_and_what_is_not_finite_are_no_figures():
    assert dict(to_values(client(1, 0, 0.5, status="failed"))) == {}
    line = finished(1) | {"metrics": {"reward": None, "kl": float("nan"), "entropy": 1}}
    assert {name for name, _ in to_values(line) if name.startswith("train/")} == {"train/entropy"}


def test_no_tracker_is_the_default(tmp_path):
    sinks = Sinks(config(), tmp_path)
    sinks.take(evaluation(0, 2))
    sinks.close()
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def wandb(monkeypatch):
    """A module under the name of a tracker's; its run fails as told."""
    module = types.ModuleType("wandb")
    module.logged, module.fail = [], False

    class Run:
        def log(self, values, step):
            if module.fail:
                raise OSError("connection reset")
            module.logged.append((step, values))

        def finish(self):
            module.logged.append("finished")

    module.init = lambda **_: Run()
    monkeypatch.setitem(sys.modules, "wandb", module)
    return module


def test_a_tracker_that_does_not_start_stops_the_run(tmp_path, wandb):
    def refuse(**_):
        raise PermissionError("no API key\nlog in first")

    wandb.init = refuse
    with pytest.raises(
        ConfigError, match=r"report.trackers='wandb': does not start \(PermissionError: no API key log in"
    ):
        Sinks(config(report__trackers="tensorboard,wandb"), tmp_path)


def test_a_tracker_that_fails_later_is_left_out_and_the_others_go_on(tmp_path, wandb, caplog):
    sinks = Sinks(config(report__trackers="wandb,tensorboard"), tmp_path)
    sinks.take(evaluation(0, 2))
    wandb.fail = True
    sinks.take(evaluation(1, 3))
    wandb.fail = False
    sinks.take(evaluation(2, 4))
    sinks.close()
    assert [step for step, _ in wandb.logged] == [0]
    assert caplog.text.count("tracker wandb failed and is left out from here on: connection reset") == 1
    assert (2, "held_out/success") in scalars(tmp_path)


def test_trackers_are_ended_with_the_run(tmp_path, wandb):
    Sinks(config(report__trackers="wandb"), tmp_path).close()
    assert wandb.logged == ["finished"]


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ("tensorbord", "no such tracker.*did you mean 'tensorboard'"),
        ("none,absent", "no such tracker"),
        ("trackio", "trackio is not installed; pip install 'flwr-agent\\[trackio\\]'"),
    ],
)
def test_an_unknown_or_missing_tracker_is_refused_before_anything_starts(names, message):
    with pytest.raises(ConfigError, match=message):
        tracking.check(config(report__trackers=names))
