"""Commands as a user gives them."""

import sys

import pytest

from flwr_agent.__main__ import main


@pytest.fixture
def refused(monkeypatch, capsys):
    """Run a command that is refused in one line; gives that line."""

    def call(*arguments: object) -> str:
        monkeypatch.setattr(sys, "argv", ["flwr-agent", *map(str, arguments)])
        monkeypatch.setattr(sys, "path", [*sys.path])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        assert (ended.value.code, out, err.count("\n")) == (2, "", 1)
        return err

    return call
