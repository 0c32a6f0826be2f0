import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from flwr_agent.cli.progress import Display, Progress, to_duration
from flwr_agent.errors import DataError


def client(round_: int, client_id: int, status: str = "accepted", reason: str = "") -> dict:
    return {"kind": "client", "round": round_, "client_id": client_id, "status": status, "reason": reason}


def finished(round_: int, seconds: float) -> dict:
    return {"kind": "round", "round": round_, "seconds": {"train": seconds, "fold": 1.0}}


def saved(round_: int) -> dict:
    return {"kind": "checkpoint", "round": round_, "seconds": 0.1}


def evaluated(round_: int, success: float) -> dict:
    return {"kind": "evaluation", "round": round_, "metrics": {"success": success}, "seconds": 2.0}


def write(path: Path, *entries: dict) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.writelines(json.dumps(entry) + "\n" for entry in entries)


def test_a_ledger_that_does_not_exist_yet_says_nothing(tmp_path: Path):
    assert Progress.read(tmp_path / "ledger.jsonl") == Progress()


def test_a_line_that_is_still_being_written_waits(tmp_path: Path):
    path = tmp_path / "ledger.jsonl"
    write(path, client(1, 0))
    path.write_bytes(path.read_bytes() + b'{"kind": "cli')
    assert Progress.read(path).clients == (0,)


def test_clients_count_for_the_round_that_is_not_finished():
    seen = Progress.of([client(1, 0), client(1, 1), finished(1, 9.0), saved(1), client(2, 1)])
    assert (seen.round, seen.clients) == (1, (1,))


def test_a_round_counts_once_its_model_is_on_disk():
    lines = [client(1, 0), finished(1, 9.0), saved(1), client(2, 0), client(2, 1), finished(2, 9.0)]
    seen = Progress.of(lines)
    assert (seen.round, seen.clients, seen.mean_round_s) == (1, (0, 1), 10.0)
    resumed = Progress.of([*lines, {"kind": "resume", "round": 2, "accepted": None}])
    assert (resumed.round, resumed.clients) == (2, ()), "killed between the checkpoint and its line"


def test_an_evaluation_without_success_is_shown_without(tmp_path: Path):
    out = io.StringIO()
    write(tmp_path / "ledger.jsonl", {"kind": "evaluation", "round": 0, "metrics": {"reward": 1.0}, "seconds": 2.0})
    Display(Console(file=out), tmp_path / "ledger.jsonl", rounds=2, clients=2).update()
    assert "round 1/2: 0 of 2 clients answered\n" in out.getvalue()


def test_a_client_that_failed_is_named_and_does_not_count():
    seen = Progress.of(
        [client(1, 0), client(1, 1, "failed", "no such model"), client(1, 0, "duplicate", "answered before")]
    )
    assert seen.clients == (0,)
    assert seen.failures == ("client 1 failed in round 1: no such model",)


def test_a_round_lasts_as_long_as_its_stages_and_its_evaluation():
    lines = [evaluated(0, 0.1), finished(1, 9.0), saved(1), evaluated(1, 0.2)]
    lines += [finished(2, 19.0), saved(2), evaluated(2, 0.3)]
    assert Progress.of(lines).mean_round_s == (10 + 2 + 20 + 2) / 2


def test_an_evaluation_that_failed_has_no_score():
    seen = Progress.of([evaluated(0, 0.1), {"kind": "evaluation", "round": 1, "error": "no node"}])
    assert [line["round"] for line in seen.evaluations] == [0]


def test_without_a_terminal_each_change_is_one_line(tmp_path: Path):
    path, out = tmp_path / "ledger.jsonl", io.StringIO()
    display = Display(Console(file=out, width=200), path, rounds=2, clients=2)
    with display.shown():
        display.say("starting Flower")
        display.update()
        write(path, {"kind": "evaluating", "round": 0})
        display.update()
        write(path, evaluated(0, 0.25), client(1, 0))
        display.update()
        display.update()
        write(path, client(1, 1), finished(1, 99.0), saved(1))
        display.update()
        write(path, finished(2, 99.0), saved(2))
        display.update()
    assert [line.partition("] ")[2] for line in out.getvalue().splitlines()] == [
        "starting Flower",
        "preparing model and tasks",
        "round 0/2: playing held-out tasks",
        "round 1/2: 1 of 2 clients answered (success 0.250 after round 0)",
        "round 2/2: 0 of 2 clients answered (success 0.250 after round 0, 2 min left)",
        "round 2/2 done (success 0.250 after round 0)",
    ]


@pytest.mark.parametrize(("seconds", "text"), [(0.4, "0 s"), (89, "89 s"), (600, "10 min"), (3700, "1 h 2 min")])
def test_durations_are_in_words(seconds: float, text: str):
    assert to_duration(seconds) == text


def test_a_fresh_run_shows_nothing_of_the_ledger_that_it_is_about_to_archive(tmp_path: Path):
    path, out = tmp_path / "ledger.jsonl", io.StringIO()
    path.write_bytes(b"no ledger at all\n")
    with pytest.raises(DataError, match=r"ledger\.jsonl"):
        Display(Console(file=io.StringIO()), path, rounds=2, clients=2).update()
    display = Display(Console(file=out, width=200), path, rounds=2, clients=2, fresh=True)
    display.update()
    assert (out.getvalue(), display.finished()) == ("", 0)
    path.rename(tmp_path / "archived.jsonl")
    write(path, finished(1, 9.0), saved(1))
    display.update()
    assert "round 2/2: 0 of 2 clients answered" in out.getvalue()
    assert display.finished() == 1
