import json
from pathlib import Path

from flwr_agent.report import curve


def ledger(folder: Path, *lines: dict) -> Path:
    (folder / "ledger.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def evaluation(round_: int, *successes: float) -> dict:
    return {"kind": "evaluation", "round": round_, "metrics": {}, "outcomes": {"sampled/success": list(successes)}}


def test_a_curve_is_a_picture_of_the_evaluated_rounds(tmp_path: Path):
    path = curve.draw(ledger(tmp_path, {"kind": "ledger"}, evaluation(0, 0, 0, 1), evaluation(1, 1, 1, 0)))
    assert path is not None
    assert path.read_bytes().startswith(b"\x89PNG")
    assert path.stat().st_size > 5_000


def test_without_an_evaluation_there_is_no_picture(tmp_path: Path):
    assert curve.draw(ledger(tmp_path, {"kind": "ledger"})) is None
