import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from flwr_agent.cli.progress import Display, Ledger, to_duration


def client(round_: int, client_id: int) -> dict:
    return {"kind": "client", "round": round_, "client_id": client_id}


def finished(round_: int, seconds: float) -> dict:
    return {"kind": "round", "round": round_, "seconds": {"train": seconds, "fold": 1.0}}


def evaluated(round_: int, success: float) -> dict:
    return {"kind": "evaluation", "round": round_, "metrics": {"success": success}}


def write(path: Path, *entries: dict) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.writelines(json.dumps(entry) + "\n" for entry in entries)


def test_a_ledger_that_does_not_exist_yet_says_nothing(tmp_path: Path):
    assert Ledger(tmp_path / "ledger.jsonl").read().num_lines == 0


def test_a_growing_ledger_is_read_once_however_it_is_cut(tmp_path: Path):
    path, whole = tmp_path / "ledger.jsonl", tmp_path / "whole"
    write(whole, evaluated(0, 0.25), client(1, 0), client(1, 1), finished(1, 9.0), client(2, 1))
    ledger, text = Ledger(path), whole.read_bytes()
    for start in range(0, len(text), 7):
        with path.open("ab") as file:
            file.write(text[start : start + 7])
        ledger.read()
    assert (ledger.num_lines, ledger.round, ledger.clients) == (5, 1, [1])
    assert (ledger.scores, ledger.round_seconds) == ({0: 0.25}, [10.0])


def test_a_ledger_that_was_archived_starts_over(tmp_path: Path):
    path = tmp_path / "ledger.jsonl"
    write(path, finished(1, 9.0), finished(2, 9.0))
    ledger = Ledger(path).read()
    path.unlink()
    write(path, client(1, 0))
    assert (ledger.read().round, ledger.clients) == (0, [0])


def test_without_a_terminal_each_stage_is_one_line(tmp_path: Path):
    path, out = tmp_path / "ledger.jsonl", io.StringIO()
    display = Display(Console(file=out, width=200), Ledger(path), rounds=2, clients=2)
    with display.shown():
        display.update("starting Flower")
        display.update("starting Flower")
        write(path, evaluated(0, 0.25), client(1, 0))
        display.update("starting Flower")
        write(path, client(1, 1), finished(1, 99.0))
        display.update()
    lines = [line.partition("] ")[2] for line in out.getvalue().splitlines()]
    assert lines == [
        "starting Flower",
        "round 1/2: 1 of 2 clients answered success 0.250 after round 0",
        "round 2/2: 0 of 2 clients answered success 0.250 after round 0, 2 min left",
    ]


@pytest.mark.parametrize(("seconds", "text"), [(0.4, "0 s"), (89, "89 s"), (600, "10 min"), (3700, "1 h 2 min")])
def test_durations_are_in_words(seconds: float, text: str):
    assert to_duration(seconds) == text
