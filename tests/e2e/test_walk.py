"""A new user's walk: a fresh clone, an empty home folder, every command of README and tutorial in order.

With `--walk-here` the checkout is taken for that clone, as it is in CI, and its environment is not made again.

A page's commands are the `$ ` lines of its `console` blocks, or all lines of a `sh` block under `<!-- walk -->`. What
follows a `$ ` line is what the command has to print; `…` stands for anything.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
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


SHORTER = {"DEMO_ARGS": "federation.rounds=1 evaluation.tasks=16", "PYTEST_ARGS": "tests/test_imports.py"}
"""What `make demo` and `make test` do less of here."""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture
def clone(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A checkout without runs, whose runs are gone afterwards."""
    folder = tmp_path_factory.mktemp("walk")
    if request.config.getoption("--walk-here"):
        checkout = ROOT
        assert not (checkout / "runs").exists(), "only a checkout without runs is a new user's"
    else:
        checkout = folder / "flwr-agent"
        done = subprocess.run(["git", "clone", "-q", "--depth", "1", f"file://{ROOT}", str(checkout)], check=False)
        assert done.returncode == 0, "a clone is walked: run this from a git checkout, or with --walk-here"
    yield checkout
    if (checkout / "runs").exists():
        shutil.move(checkout / "runs", folder / "runs")


def walk(page: Path, clone: Path, home: Path) -> None:
    """Run a page's commands in one shell and compare what each prints."""
    todo = commands(page)
    script = home / "walk.sh"
    script.write_text("".join(f"echo {MARK}\n{command.line}\n" for command in todo), encoding="utf-8")
    environment = {name: os.environ[name] for name in PASSED_ON if name in os.environ} | {"HOME": str(home)}  # noqa: TID251
    done = subprocess.run(
        ["bash", "-e", script],
        stdin=subprocess.DEVNULL,
        cwd=clone,
        env=environment | {"COLUMNS": "80", "OMP_WAIT_POLICY": "PASSIVE"} | SHORTER,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    printed = [part.removeprefix("\n") for part in done.stdout.split(MARK)[1:]]
    differences = [
        f"$ {command.line}\n{output}\ninstead of\n{command.expected}"
        for command, output in zip(todo, printed, strict=False)
        if not is_as_expected(output, command.expected)
    ]
    assert not differences, "\n".join(differences)
    assert (done.returncode, len(printed)) == (0, len(todo)), done.stdout[-3000:]


@pytest.mark.parametrize("page", ["README.md", "docs/tutorial.md"])
def test_a_page_does_what_it_says(page: str, clone: Path, home: Path):
    walk(clone / page, clone, home)
