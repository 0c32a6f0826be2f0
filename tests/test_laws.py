"""The page of laws names tests that exist, and every law one."""

import re

from flwr_agent.paths import ROOT

PAGE = (ROOT / "docs/laws.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| (\d+) \| .+ \| (.+) \|$", PAGE, re.MULTILINE)


def test_every_law_is_held_by_tests_that_exist():
    assert [int(number) for number, _ in ROWS] == sorted(int(number) for number, _ in ROWS)
    assert len(ROWS) == PAGE.count("\n| ") - 1
    for number, tests in ROWS:
        named = re.findall(r"`([\w/.]+)::(\w+)`", tests)
        assert named, number
        for file, name in named:
            assert f"def {name}(" in (ROOT / file).read_text(encoding="utf-8"), name
