"""A new user's walk: a fresh clone, an empty home folder, every command of README and tutorial in order.

A page's commands are the `$ ` lines of its `console` blocks, or all lines of a `sh` block under `<!-- walk -->`. What
follows a `$ ` line is what the command has to print; `…` stands for anything.
"""

import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from flwr_agent.paths import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.e2e, pytest.mark.timeout(5400)]
_BLOCK = re.compile(r"^(<!-- walk -->\n)?```(console|sh)\n(.*?)^```$", flags=re.MULTILINE | re.DOTALL)
MARK = "@@walk@@"
PASSED_ON = ("PATH", "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_CONFIG_FILE", "PIP_CERT", "SSL_CERT_FILE", "LANG")


@dataclass
class Command:
    """A command and what it has to print."""

    line: str
    expected: str


def commands(page: Path) -> list[Command]:
    """The commands of a page, in order."""
    found: list[Command] = []
    for marked, language, body in _BLOCK.findall(page.read_text(encoding="utf-8")):
        if language == "console":
            for part in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
                line, _, expected = part.partition("\n")
                found.append(Command(line, expected))
        elif marked:
            found += [Command(line.partition("  #")[0].strip(), "…\n") for line in body.splitlines() if line.strip()]
    return found


def is_as_expected(printed: str, expected: str) -> bool:
    """Whether an output is what the page shows; a line `…` stands for any lines, `…` within one for any characters."""
    pattern = ""
    for line in expected.splitlines():
        pattern += r"(?:.*\n)*?" if line == "…" else ".*?".join(map(re.escape, line.split("…"))) + r"\s*\n"
    return re.fullmatch(pattern, printed if printed.endswith("\n") or not printed else printed + "\n") is not None


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("walk") / "flwr-agent"
    done = subprocess.run(["git", "clone", "-q", "--depth", "1", f"file://{ROOT}", str(folder)], check=False)
    if done.returncode:
        pytest.skip("not a git checkout")
    return folder


def walk(page: Path, clone: Path, home: Path) -> None:
    """Run a page's commands in one shell and compare what each prints; `make test` runs one file of the suite here."""
    todo = commands(page)
    script = home / "walk.sh"
    script.write_text("".join(f"echo {MARK}\n{command.line}\n" for command in todo), encoding="utf-8")
    environment = {name: os.environ[name] for name in PASSED_ON if name in os.environ} | {"HOME": str(home)}  # noqa: TID251
    done = subprocess.run(
        ["bash", "-e", script],
        stdin=subprocess.DEVNULL,
        cwd=clone,
        env=environment | {"COLUMNS": "80", "PYTEST_ARGS": "tests/test_imports.py"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    printed = [part.removeprefix("\n") for part in done.stdout.split(MARK)[1:]]
    for command, output in zip(todo, printed, strict=False):
        assert is_as_expected(output, command.expected), f"$ {command.line}\n{output}\ninstead of\n{command.expected}"
    assert (done.returncode, len(printed)) == (0, len(todo)), done.stdout[-3000:]


def test_the_readme_does_what_it_says(clone: Path, tmp_path_factory: pytest.TempPathFactory):
    walk(clone / "README.md", clone, tmp_path_factory.mktemp("home"))


def test_the_tutorial_does_what_it_says(clone: Path, tmp_path_factory: pytest.TempPathFactory):
    walk(clone / "docs" / "tutorial.md", clone, tmp_path_factory.mktemp("home"))
