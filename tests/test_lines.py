import pytest

from flwr_agent import lines
from flwr_agent.errors import DataError

HEAD = b'{"kind": "ledger", "version": 1}\n'


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "does not open a ledger"),
        (b'{"kind": "ledger", "version": 9}\n', "version: is 9, this flwr-agent reads 1"),
        (HEAD + b"\xff\xfe\n", "line 2: "),
        (HEAD + b'{"kind": "rou\n', "line 2: "),
        (HEAD + b"[" * 10**5 + b"\n", "line 2: "),
        (HEAD + b"[1]\n", "line 2 is no ledger line"),
        (HEAD + b'{"kind": "evaluation", "success": NaN}\n', "line 2: NaN is no JSON"),
        (HEAD + b'{"kind": "round", "round": 1e400}\n', "line 2: round is 'inf', not of type int"),
        (HEAD + b'{"kind": "evaluation", "round": 1}\n', "line 2: of kind evaluation has no metrics"),
    ],
)
def test_a_damaged_ledger_is_refused_by_line_and_left_as_it_is(tmp_path, data, message):
    path = tmp_path / lines.FILE
    path.write_bytes(data)
    with pytest.raises(DataError, match=message):
        lines.read(path)
    assert path.read_bytes() == data


def test_kinds_that_nobody_knows_are_kept(tmp_path):
    (tmp_path / lines.FILE).write_bytes(HEAD + b'{"kind": "news", "text": "x"}\n')
    assert [line["kind"] for line in lines.read(tmp_path / lines.FILE)] == ["ledger", "news"]
