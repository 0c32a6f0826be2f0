import shutil
from dataclasses import replace

import numpy as np
import pytest
from fakes import InMemoryGrid, client, config, model, train

from flwr_agent import codec, payload, protocol, residual
from flwr_agent.arrays import digest, from_record, to_record
from flwr_agent.errors import ProtocolError
from flwr_agent.residual import Residual
from strategies import FedAvg, Observer, Status

pytestmark = pytest.mark.usefixtures("task_identity")
DELTA = {"strategy__payload": "delta"}
INT8, BF16 = DELTA | {"strategy__compression": "int8"}, DELTA | {"strategy__compression": "bf16"}
FEEDBACK = INT8 | {"strategy__error_feedback": True}


@pytest.fixture(autouse=True)
def residuals(tmp_path, monkeypatch):
    monkeypatch.setattr(residual, "FOLDER", tmp_path)
    return tmp_path


class Notes(Observer):
    def __init__(self):
        self.outcomes, self.rounds = [], []

    def answered(self, outcome):
        self.outcomes.append(outcome)

    def finished(self, round_):
        self.rounds.append(round_)


def play(keys, num_rounds=1, serve=None, notes=None, strategy=None, in_buckets=False, **options):
    run = config(**keys)
    strategy = strategy or FedAvg.from_config(run)
    record = protocol.run_record(run, experiment="run", base_digest="base", in_buckets=in_buckets)
    grid = InMemoryGrid(serve or client())
    return strategy.start(
        grid,
        options.pop("arrays", to_record(model())),
        num_rounds=num_rounds,
        train_config=record,
        observer=notes,
        **options,
    )


def moved(result):
    return np.concatenate([(v - model()[n]).reshape(-1) for n, v in from_record(result.arrays).items()])


@pytest.mark.parametrize(("keys", "close"), [(DELTA, 1e-6), (BF16, 1e-2), (INT8, 3e-2)])
def test_a_round_of_deltas_is_the_round_of_weights_up_to_rounding(keys, close):
    values, deltas = moved(play({})), moved(play(keys))
    assert np.abs(values - deltas).max() < close * np.abs(values).max()
    assert not np.array_equal(values, deltas)


@pytest.mark.parametrize("keys", [{}, DELTA, BF16, INT8, FEEDBACK])
def test_buckets_change_no_bit(keys, residuals):
    by_name = play(keys, num_rounds=3)
    for folder in residuals.iterdir():
        shutil.rmtree(folder)
    assert digest(from_record(play(keys, num_rounds=3, in_buckets=True).arrays)) == digest(from_record(by_name.arrays))


def test_compression_shortens_what_comes_back_and_not_what_is_sent():
    def large(request):
        return replace(train(request), arrays={"w": request.arrays["w"] + np.float32(0.01)})

    def traffic(keys):
        notes = Notes()
        play(keys, serve=client(large), notes=notes, arrays=to_record({"w": np.ones(100_000, "f4")}))
        return notes.rounds[0].payload_bytes

    plain, bf16, int8 = traffic({}), traffic(BF16), traffic(INT8)
    assert plain["sent"] == bf16["sent"] == int8["sent"] == plain["received"]
    assert bf16["received"] / plain["received"] == pytest.approx(0.5, abs=0.001)
    assert int8["received"] / plain["received"] == pytest.approx(0.254, abs=0.001)


def test_rounding_is_a_function_of_run_round_and_client():
    assert digest(from_record(play(INT8).arrays)) == digest(from_record(play(INT8).arrays))
    request = asked(INT8)
    sent = [
        payload.pack(r, train(request)) for r in (request, replace(request, round=2), replace(request, client_id=1))
    ]
    assert len({record["actor/embed"].data for record in sent}) == 3


def asked(keys, client_id=0, round_=1, folded=0):
    record = protocol.run_record(config(**keys), experiment="run", base_digest="base")
    record = protocol.addressed(record, round_=round_, client_id=client_id, placement="any", folded=folded)
    return protocol.train_request(protocol.request_content(to_record(model()), record), {})


@pytest.mark.parametrize("keys", [BF16, INT8])
def test_a_delta_that_is_not_finite_never_leaves_its_client(keys):
    request = asked(keys)
    reply = train(request)
    reply.arrays["actor/embed"][0, 0] = np.nan
    with pytest.raises(ProtocolError, match="actor/embed holds NaN or infinity"):
        payload.pack(request, reply)


def test_a_reply_in_another_form_than_asked_for_is_rejected():
    def plain(message):
        request = protocol.train_request(message.content, {})
        (reply,) = client()(message)
        if request.client_id == 1:
            reply.content["arrays"] = to_record(train(request).arrays)
        return [reply]

    notes = Notes()
    play(INT8, serve=plain, notes=notes)
    assert {outcome.client_id: outcome.status for outcome in notes.outcomes} == {0: Status.ACCEPTED, 1: Status.REJECTED}
    assert "is not in the manifest" in notes.outcomes[-1].reason


def test_error_feedback_sends_what_rounding_has_cost_before():
    request = asked(FEEDBACK)
    first = payload.unpack(payload.pack(request, train(request)), "int8")
    lost = Residual("run", 0).after(1)
    for name, values in train(request).arrays.items():
        exact = values - request.arrays[name]
        np.testing.assert_allclose(first[name] + lost[name], exact, atol=1e-6)
    again = replace(asked(FEEDBACK, round_=2, folded=1))
    second = payload.unpack(payload.pack(again, train(again)), "int8")
    for name, values in train(again).arrays.items():
        exact = values - again.arrays[name] + lost[name]
        assert np.abs(second[name] - exact).max() <= np.abs(exact).max() / codec.LARGEST * 1.001


def test_a_reply_that_was_not_folded_costs_nothing_and_a_round_run_again_gives_the_same_bytes():
    request = asked(FEEDBACK)
    once = payload.pack(request, train(request))["actor/embed"].data
    assert payload.pack(request, train(request))["actor/embed"].data == once
    dropped = asked(FEEDBACK, round_=2, folded=0)
    without = asked(INT8, round_=2)
    assert (
        payload.pack(dropped, train(dropped))["actor/embed"].data
        == payload.pack(without, train(without))["actor/embed"].data
    )


def test_a_residual_that_the_disk_has_lost_is_an_error_that_names_it():
    with pytest.raises(ProtocolError, match=r"round-00004.safetensors is missing, so the loss of round 4"):
        payload.pack(request := asked(FEEDBACK, round_=5, folded=4), train(request))


def test_the_disk_holds_two_residuals_a_client_at_most(residuals):
    play(FEEDBACK, num_rounds=5)
    kept = sorted(path.relative_to(residuals).as_posix() for path in residuals.rglob("*.safetensors"))
    assert kept == [f"run/client-{c}/round-0000{r}.safetensors" for c in (0, 1) for r in (4, 5)]


def test_with_error_feedback_a_run_split_in_two_ends_in_the_same_bits(residuals):
    whole = play(FEEDBACK, num_rounds=4)
    first = FedAvg.from_config(config(**FEEDBACK))
    half = play(FEEDBACK, num_rounds=2, strategy=first)
    second = FedAvg.from_config(config(**FEEDBACK))
    second.load_state(first.state_arrays())
    play(FEEDBACK, num_rounds=3, strategy=second, arrays=half.arrays, first_round=3)  # a dead attempt
    third = FedAvg.from_config(config(**FEEDBACK))
    third.load_state(first.state_arrays())
    rest = play(FEEDBACK, num_rounds=4, strategy=third, arrays=half.arrays, first_round=3)
    assert digest(from_record(rest.arrays)) == digest(from_record(whole.arrays))


def still(request):
    """A client that moves every weight by the same small step."""
    arrays = {
        name: values + np.float32(1e-3) * (1 + np.arange(values.size, dtype="f4").reshape(values.shape))
        for name, values in request.arrays.items()
    }
    return replace(train(request), arrays=arrays)


def test_error_feedback_brings_the_sum_of_many_rounds_nearer_to_the_exact_one():
    def error(keys):
        return np.abs(moved(play(keys, 30, client(still))) - moved(play({}, 30, client(still)))).max()

    assert error(FEEDBACK) < 0.5 * error(INT8)
