"""The order in which an engine is used: weights only while it sleeps, answers only while it is awake."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flwr_agent.errors import WorkerError
from flwr_agent.rl.engine import Engine
from flwr_agent.rl.generate import Completion, Request

REQUEST = Request(0, [1], 1, 1, 1.0)


class Recorder:
    """A backend that writes down what it is told."""

    def __init__(self):
        self.calls: list[str] = []
        self.queue: list[Request] = []

    def load(self, weights):
        self.calls.append("load")

    def submit(self, request):
        self.calls.append("submit")
        self.queue.append(request)

    def collect(self):
        self.calls.append("collect")
        done, self.queue = self.queue, []
        return [Completion(request.key, [1], [0.0]) for request in done]

    def sleep(self):
        self.calls.append("sleep")
        self.queue = []


def perform(engine: Engine, call: str) -> None:
    {"load": lambda: engine.load([]), "submit": lambda: engine.submit(REQUEST)}.get(call, getattr(engine, call))()


LEGAL = {
    ("asleep", "load"): "awake",
    ("awake", "submit"): "open",
    ("awake", "collect"): "awake",
    ("awake", "sleep"): "asleep",
    ("open", "collect"): "awake",
}
"""(state, call) -> next state; with one key, everything else is refused."""


@given(st.lists(st.sampled_from(["load", "submit", "collect", "sleep"]), max_size=12))
def test_only_the_legal_order_reaches_the_backend(calls):
    backend = Recorder()
    engine, state = Engine(backend), "asleep"
    for call in calls:
        before = len(backend.calls)
        if (following := LEGAL.get((state, call))) is None:
            with pytest.raises(WorkerError):
                perform(engine, call)
            assert len(backend.calls) == before
        else:
            perform(engine, call)
            state = following
    for one, other in itertools.pairwise(call for call in backend.calls if call in ("load", "sleep")):
        assert one != other


def test_an_illegal_call_says_the_order():
    with pytest.raises(
        WorkerError, match="submit is illegal while the engine is asleep; the order is load, answer, sleep"
    ):
        Engine(Recorder()).submit(REQUEST)


def test_training_sees_a_sleeping_engine_also_after_a_failure():
    backend = Recorder()
    engine = Engine(backend)

    def failing():
        with engine.awake([]):
            engine.submit(REQUEST)
            raise KeyError("x")

    with pytest.raises(KeyError):
        failing()
    assert not engine.is_awake
    assert backend.queue == []
    with engine.awake([]):
        engine.submit(REQUEST)
        assert [completion.key for completion in engine.collect()] == [0]
    assert backend.calls == ["load", "submit", "sleep", "load", "submit", "collect", "sleep"]
