"""The pages that are walked, without walking: their commands exist, and the comparison can fail."""

import pytest
from e2e.test_walk import commands, is_as_expected

from flwr_agent.paths import ROOT


@pytest.mark.parametrize(("page", "least"), [("README.md", 5), ("docs/tutorial.md", 15)])
def test_a_page_has_commands_to_walk(page, least):
    found = commands(ROOT / page)
    assert len(found) >= least
    assert all(command.line for command in found)


def test_a_line_of_dots_stands_for_any_lines_and_dots_in_a_line_for_any_characters():
    assert is_as_expected("a\nb\nc 0.25 d\n", "…\nc … d\n")
    assert is_as_expected("", "")
    assert is_as_expected("a\n", "a\n…\n")
    assert not is_as_expected("a\nb\n", "a\n")
    assert not is_as_expected("", "a\n")
    assert not is_as_expected("c 0.25 e\n", "c … d\n")
