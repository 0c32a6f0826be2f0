"""Whole runs over an in-memory transport with a trainer made of arithmetic."""

import json
import os

import numpy as np
import pytest
from fakes import NEVER, InMemoryGrid, client, config, model, train
from flwr.app import Error, Message

from flwr_agent import protocol
from flwr_agent.arrays import digest, load
from flwr_agent.errors import ConfigError, QuorumError, ResumeError
from flwr_agent.requests import EvaluateReply, InitialModel
from server_app.run import run
from strategies import stream

pytestmark = pytest.mark.usefixtures("task_identity", "no_pause")
ROUNDS = 3


class Killed(BaseException):
    pass


@pytest.fixture
def no_pause(monkeypatch):
    monkeypatch.setattr(stream, "POLL_S", 0.0)


def score(request):
    mean = float(np.mean([np.mean(values) for values in request.arrays.values()]))
    outcomes = {"sampled/success": (1.0, 0.0), "greedy/success": (0.0, 0.0)}
    metrics = {"success": mean, "greedy/success": 0.0}
    return EvaluateReply(round=request.round, metrics=metrics, outcomes=outcomes, tasks=("a", "b"))


def options(folder, **keys):
    return config(**({"output_dir": str(folder), "federation__rounds": ROUNDS, "report__page": False} | keys))


def start():
    return InitialModel(arrays=model(), base_digest=digest(model()))


def play(folder, serve=None, score=score, grid=None, **keys):
    grid = grid or InMemoryGrid(serve or client())
    run(options(folder, **keys), grid, initial_model=lambda _: start(), serve=score)
    return final(folder)


def final(folder):
    last = max(path.name for path in folder.glob("round-*"))
    return last, digest(load(folder / last / "model.safetensors"))


def lines(folder, *kinds):
    found = [json.loads(line) for line in (folder / "ledger.jsonl").read_text().splitlines()]
    return [line for line in found if line["kind"] in kinds] if kinds else found


def summary(folder):
    return json.loads((folder / "federated_summary.json").read_text())


def facts(folder):
    """What a resumed run must share with an uninterrupted one: no seconds, no node ids."""
    rounds = [(line["round"], line["clients"], line["digest"], line["metrics"]) for line in lines(folder, "round")]
    scores = [(line["round"], line["metrics"]) for line in lines(folder, "evaluation")]
    clients = [(line["round"], line["client_id"], line["status"]) for line in lines(folder, "client")]
    return rounds, scores, clients


@pytest.fixture
def whole(tmp_path):
    folder = tmp_path / "whole"
    play(folder)
    return folder


def test_a_run_writes_its_config_its_ledger_its_checkpoints_and_its_summary(whole):
    names = {path.name for path in whole.iterdir() if not path.name.startswith(".")}
    assert names == {
        "config.json",
        "ledger.jsonl",
        "manifest.txt",
        "federated_summary.json",
        "round-00000",
        "round-00002",
        "round-00003",
        "round_1",
        "round_2",
        "round_3",
    }
    assert json.loads((whole / "config.json").read_text())["config"]["federation.rounds"] == ROUNDS
    kinds = [line["kind"] for line in lines(whole)]
    a_round = ["client", "client", "accepted", "round", "checkpoint", "evaluating", "evaluation"]
    assert kinds == ["ledger", "evaluating", "evaluation", *a_round * ROUNDS, "complete"]


def test_a_run_ends_with_a_page_and_can_show_its_figures_to_trackers(tmp_path):
    folder = tmp_path / "run"
    play(folder, report__page=True, report__trackers="tensorboard", federation__rounds=1)
    assert "Held-out success, sampled" in (folder / "report.html").read_text()
    assert (folder / "figures" / "sampled-success-rounds.png").is_file()
    assert list((folder / "tensorboard").iterdir())


def test_a_page_that_cannot_be_made_is_no_end_of_a_run(tmp_path, caplog):
    folder = tmp_path / "run"
    folder.mkdir()
    play(folder, report__page=True, federation__rounds=1, serve=client(lambda request: _blocking(folder, request)))
    assert "no report: " in caplog.text
    assert summary(folder)["loop_completed"] is True


def _blocking(folder, request):
    (folder / "figures").write_text("a file where a folder has to be")
    return train(request)


def test_a_round_line_holds_its_digest_seconds_and_bytes(whole):
    line = lines(whole, "round")[-1]
    assert line["digest"] == final(whole)[1]
    assert {"place", "send", "receive_and_fold", "digest"} <= line["seconds"].keys()
    assert line["payload_bytes"]["received"] > 0
    assert lines(whole, "client")[0]["metrics"] == {"reward": 0.0, "time/rollout": 1.0}


@pytest.mark.parametrize("round_", range(1, ROUNDS + 1))
@pytest.mark.parametrize("client_id", [0, 1])
def test_killed_in_any_round_and_resumed_a_run_ends_in_the_same_bits(tmp_path, whole, round_, client_id):
    def deadly(request):
        if (request.round, request.client_id) == (round_, client_id):
            raise Killed
        return train(request)

    folder = tmp_path / "killed"
    with pytest.raises(Killed):
        play(folder, client(deadly))
    assert play(folder) == final(whole)
    assert facts(folder) == facts(whole)


@pytest.mark.parametrize("name", ["fedavgm", "fedadagrad", "fedadam", "fedyogi"])
def test_a_server_optimizer_goes_on_with_its_moments(tmp_path, name):
    whole = play(tmp_path / "whole", strategy__name=name)
    play(tmp_path / "run", strategy__name=name, federation__rounds=2)
    assert play(tmp_path / "run", strategy__name=name) == whole
    (tmp_path / "run" / "round-00003" / "state.json").unlink()
    assert play(tmp_path / "run", strategy__name=name) == whole


def test_killed_at_any_write_and_resumed_a_run_ends_in_the_same_bits(tmp_path, monkeypatch):
    whole = tmp_path / "whole"
    play(whole, federation__rounds=2)
    real, survived = os.fsync, False
    for after in range(200):
        calls = iter(range(after))

        def sync(handle, calls=calls):
            if next(calls, None) is None:
                raise Killed
            real(handle)

        folder = tmp_path / f"killed-{after}"
        monkeypatch.setattr(os, "fsync", sync)
        try:
            play(folder, federation__rounds=2)
            survived = True
        except Killed:
            survived = False
        monkeypatch.setattr(os, "fsync", real)
        assert play(folder, federation__rounds=2) == final(whole), after
        assert facts(folder) == facts(whole), after
        if survived:
            break
    assert survived
    assert after > 20


def test_a_finished_run_started_again_changes_nothing(whole):
    before = facts(whole), final(whole)
    play(whole, client(pytest.fail))
    assert (facts(whole), final(whole)) == before


def test_a_finished_run_goes_on_when_it_is_given_more_rounds(tmp_path, whole):
    play(whole, federation__rounds=5)
    assert final(whole) == play(tmp_path / "five", federation__rounds=5)
    assert facts(whole)[0] == facts(tmp_path / "five")[0]
    assert summary(whole)["resumed_from_round"] == ROUNDS


def test_a_quorum_that_was_missed_can_be_resumed_to_the_same_bits(tmp_path, whole):
    def failing(message):
        replies = client()(message)
        if protocol.client_of(message.content) == 1 and message.metadata.group_id == "2":
            return [Message(Error(2, "out of memory"), reply_to=message)]
        return replies

    folder = tmp_path / "run"
    with pytest.raises(QuorumError, match="out of memory"):
        play(folder, failing, federation__min_clients=2)
    assert summary(folder)["loop_completed"] is False
    assert [point["round"] for point in summary(folder)["val_curve"]] == [0, 1]
    assert play(folder, federation__min_clients=2) == final(whole)
    assert summary(folder)["loop_completed"] is True


def test_a_resumed_round_replays_the_set_that_was_accepted(tmp_path):
    """Killed after client 1 was dropped by the deadline and before the round had a checkpoint."""
    folder = tmp_path / "run"
    grid = InMemoryGrid(client(), delay=lambda m: NEVER if protocol.client_of(m.content) == 1 else 0)
    play(folder, grid=grid, federation__rounds=1, federation__round_timeout_s=1.0)
    dropped = final(folder)
    (folder / "round-00001" / "state.json").unlink()
    assert play(folder, federation__rounds=1) == dropped
    assert lines(folder, "resume")[-1] == {"kind": "resume", "round": 0, "accepted": [0]}
    assert "clients_before_resume" not in summary(folder)["rounds"][0]


def test_a_resumed_round_with_another_set_says_so(tmp_path):
    folder = tmp_path / "run"
    play(folder, federation__rounds=1)
    (folder / "round-00001" / "state.json").unlink()
    grid = InMemoryGrid(client(), delay=lambda m: NEVER if protocol.client_of(m.content) == 1 else 0)
    play(folder, grid=grid, federation__rounds=1, federation__round_timeout_s=1.0)
    (line,) = summary(folder)["rounds"]
    assert (line["clients"], line["clients_before_resume"]) == ([0], [0, 1])


def test_another_objective_in_the_same_folder_is_refused_before_any_client_works(whole):
    with pytest.raises(ResumeError, match=r"seed was 42, is 43"):
        play(whole, client(pytest.fail), seed=43)


def test_fresh_archives_and_starts_again(whole):
    before = final(whole)
    assert play(whole, fresh=True) == before
    assert final(whole / "_archive" / "run.1") == before
    assert len(lines(whole, "resume")) == 0
    ids = [
        json.loads((f / "round-00000" / "state.json").read_text())["experiment"]
        for f in (whole, whole / "_archive" / "run.1")
    ]
    assert ids[0] != ids[1], "clients keep what is theirs by this id"


def test_an_unknown_strategy_leaves_no_folder(tmp_path):
    with pytest.raises(ConfigError, match="did you mean 'fedprox'"):
        play(tmp_path / "run", strategy__name="fedproxx")
    assert list(tmp_path.iterdir()) == []


def test_a_client_that_fails_once_in_every_round_changes_no_bit(tmp_path, whole):
    failed = set()

    def failing(message):
        key = message.metadata.group_id
        if protocol.client_of(message.content) == 1 and key not in failed:
            failed.add(key)
            return [Message(Error(2, "out of memory"), reply_to=message)]
        return client()(message)

    folder = tmp_path / "run"
    assert play(folder, failing) == final(whole)
    statuses = [(line["client_id"], line["attempt"], line["status"]) for line in lines(folder, "client")]
    assert statuses == [(0, 1, "accepted"), (1, 1, "failed"), (1, 2, "accepted")] * ROUNDS


def test_a_baseline_asks_one_client_and_averages_nothing(tmp_path):
    asked = []

    def serve(message):
        asked.append(protocol.client_of(message.content))
        return client()(message)

    play(tmp_path / "local", serve, federation__mode="local", federation__local_client=1, strategy__name="fedadam")
    assert asked == [1] * ROUNDS
    assert (summary(tmp_path / "local")["mode"], summary(tmp_path / "local")["local_client_id"]) == ("local", 1)
    asked.clear()
    play(tmp_path / "central", serve, federation__mode="centralized")
    assert asked == [0] * ROUNDS
    assert summary(tmp_path / "central")["mode"] == "centralized"


def test_fedprox_without_its_term_is_fedavg(tmp_path, whole):
    assert play(tmp_path / "prox", strategy__name="fedprox") == final(whole)


def test_the_summary_has_the_published_shape(whole):
    found = summary(whole)
    assert found["mode"] == "federated"
    assert found["loop_completed"] is True
    assert (found["total_clients"], found["clients_per_round"], found["total_rounds"]) == (2, 2, ROUNDS)
    assert found["env_kind"] == "webshop"
    assert found["adv_estimator"] == "grpo"
    assert "resumed_from_round" not in found
    assert found["final_model"] == str(whole / "round-00003")
    assert [(p["round"], p["model"], p["n"]) for p in found["val_curve"]] == [
        (0, "base", 2),
        (1, "aggregated", 2),
        (2, "aggregated", 2),
        (3, "aggregated", 2),
    ]
    assert found["val_curve"][0].keys() == {"round", "model", "n", "success_rate", "greedy_success_rate"}
    assert [line["clients"] for line in found["rounds"]] == [[0, 1]] * ROUNDS
    assert [line["started_from"] for line in found["rounds"]] == ["round-00000", "round-00001", "round-00002"]
    assert found["rounds"][-1]["aggregated_actor"] == found["final_model"]
    assert found["rounds"][0]["aggregated_actor"] is None


@pytest.mark.parametrize(
    ("keys", "rounds"),
    [
        ({"evaluation__where": "off"}, []),
        ({"evaluation__every": 2}, [0, 2, 3]),
        ({"evaluation__every": 9}, [0, 3]),
    ],
)
def test_round_zero_and_the_last_are_always_scored_and_the_others_as_asked(tmp_path, keys, rounds):
    play(tmp_path, **keys)
    assert [line["round"] for line in lines(tmp_path, "evaluation")] == rounds


def evaluating_client(message):
    if message.metadata.message_type != "evaluate":
        return client()(message)
    if message.metadata.dst_node_id == 7:
        return [Message(Error(2, "busy"), reply_to=message)]
    request = protocol.evaluate_request(message.content)
    return [Message(protocol.evaluate_reply_content(request, score(request)), reply_to=message)]


def test_a_client_may_play_the_evaluation_and_the_result_is_the_servers(tmp_path, whole):
    play(tmp_path / "run", evaluating_client, pytest.fail, evaluation__where="client")
    assert facts(tmp_path / "run")[1] == facts(whole)[1]


def test_a_node_whose_evaluation_tells_more_than_the_manifest_is_passed_over(tmp_path, whole):
    said = []

    def serve(message):
        replies = evaluating_client(message)
        if message.metadata.message_type == "evaluate" and message.metadata.dst_node_id == 9:
            said.append(message)
            content = protocol.evaluate_reply_content(
                protocol.evaluate_request(message.content), score(protocol.evaluate_request(message.content))
            )
            content["config"]["tasks"] = ["I open the fridge\nand take the apple", "b"]
            return [Message(content, reply_to=message)]
        return replies

    play(tmp_path / "run", grid=InMemoryGrid(serve, nodes=[9, 11]), serve=pytest.fail, evaluation__where="client")
    assert said
    assert facts(tmp_path / "run")[1] == facts(whole)[1]


def test_a_round_that_nobody_can_score_has_a_line_and_no_point(tmp_path, whole):
    grid = InMemoryGrid(evaluating_client, nodes=[7])
    assert play(tmp_path / "run", grid=grid, evaluation__where="client") == final(whole)
    assert lines(tmp_path / "run", "evaluation_failed")[0]["reason"].endswith("node 7: busy")
    assert summary(tmp_path / "run")["val_curve"] == []
