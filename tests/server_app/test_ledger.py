import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flwr_agent.errors import ResumeError
from server_app.ledger import Ledger


def test_a_ledger_starts_with_its_version_and_keeps_the_order_of_its_lines(tmp_path):
    ledger = Ledger(tmp_path)
    ledger.append("round", round=1, clients=[0, 1])
    ledger.append("evaluation", round=1, metrics={"success": 0.5})
    assert [line["kind"] for line in Ledger(tmp_path).lines()] == ["ledger", "round", "evaluation"]
    assert ledger.lines()[0]["version"] == 1


def test_a_ledger_of_another_version_is_refused_with_the_way_out(tmp_path):
    (tmp_path / "ledger.jsonl").write_text('{"kind": "ledger", "version": 9}\n')
    with pytest.raises(ResumeError, match=r"version 9.*writes 1; set fresh=true"):
        Ledger(tmp_path)


@given(st.binary(max_size=40))
def test_a_line_that_was_cut_off_is_no_line(tmp_path_factory, rest):
    folder = tmp_path_factory.mktemp("ledger")
    ledger = Ledger(folder)
    ledger.append("round", round=1)
    with ledger.path.open("ab") as file:
        file.write(b'{"kind": "rou' + rest.replace(b"\n", b" "))
    assert [line["kind"] for line in ledger.lines()] == ["ledger", "round"]


def test_rewinding_returns_what_it_cuts_off(tmp_path):
    ledger = Ledger(tmp_path)
    ledger.append("round", round=1)
    position = ledger.position
    ledger.append("client", round=2)
    with ledger.path.open("ab") as file:
        file.write(b'{"torn')
    assert ledger.rewind(position) == [{"kind": "client", "round": 2}]
    assert ledger.position == position
    ledger.append("client", round=3)
    assert ledger.lines()[-1] == {"kind": "client", "round": 3}


def test_what_is_not_finite_is_null(tmp_path):
    ledger = Ledger(tmp_path)
    ledger.append("client", metrics={"loss": float("nan"), "many": (1.0, float("inf"))})
    text = ledger.path.read_text().splitlines()[-1]
    assert json.loads(text, parse_constant=pytest.fail)["metrics"] == {"loss": None, "many": [1.0, None]}


@pytest.mark.parametrize("shift", [-1, 1, 5])
@pytest.mark.parametrize("tail", [b"", b'{"kind": "client"}\n', b'{"torn'])
def test_a_position_inside_a_line_is_refused_and_the_ledger_left_as_it_is(tmp_path, shift, tail):
    ledger = Ledger(tmp_path)
    ledger.append("round", round=1)
    position = ledger.position if tail else ledger.position - 10
    with ledger.path.open("ab") as file:
        file.write(tail)
    before = ledger.path.read_bytes()
    with pytest.raises(ResumeError, match=rf"no line ends at byte {position + shift}; restore it, or set fresh=true"):
        ledger.rewind(position + shift)
    assert ledger.path.read_bytes() == before


def test_a_ledger_shorter_than_its_checkpoint_is_refused_and_left_as_it_is(tmp_path):
    ledger = Ledger(tmp_path)
    before = ledger.path.read_bytes()
    with pytest.raises(ResumeError, match="shorter than the checkpoint says"):
        ledger.rewind(len(before) + 1)
    assert ledger.path.read_bytes() == before
