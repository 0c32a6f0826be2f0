import shutil
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("busy", deadline=None)
settings.load_profile("busy")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--data", type=Path, default=None, help="folder with real WebShop and ALFWorld data")
    parser.addoption(
        "--all-kills", action="store_true", help="kill every process at every stage, not the distinct ones"
    )
    parser.addoption(
        "--require-sandbox", action="store_true", help="fail, instead of skip, where bubblewrap is missing"
    )
    parser.addoption("--walk-here", action="store_true", help="walk the pages in this checkout, not in a clone of it")
    parser.addoption("--require-chromium", action="store_true", help="fail, instead of skip, where Chromium is missing")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the lines that tests have recorded, each once, wherever they ran."""
    reports = [report for outcome in ("passed", "failed") for report in terminalreporter.getreports(outcome)]
    lines = [text for report in reports for name, text in report.user_properties if name == "line"]
    for line in dict.fromkeys(lines):
        terminalreporter.write_line(line)


@pytest.fixture(scope="session")
def data_dir(request: pytest.FixtureRequest) -> Path:
    """The folder given with `--data`; tests that need it are skipped without one."""
    folder = request.config.getoption("--data")
    if folder is None:
        pytest.skip("needs real data: run pytest with --data=DIR")
    return folder.resolve()


@pytest.fixture(scope="session")
def bwrap(request: pytest.FixtureRequest) -> None:
    """Bubblewrap; tests that need it are skipped without it, or fail with `--require-sandbox`."""
    if shutil.which("bwrap") is None and not request.config.getoption("--require-sandbox"):
        pytest.skip("needs bubblewrap: apt-get install bubblewrap")


@pytest.fixture
def task_identity(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let Flower messages be made outside a run."""
    _identify(monkeypatch)


@pytest.fixture(scope="module")
def flower_messages() -> Iterator[None]:
    """The same for a fixture of a whole module."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        _identify(monkeypatch)
        yield


def _identify(monkeypatch: pytest.MonkeyPatch) -> None:
    if find_spec("flwr.supercore.task_identity") is None:
        return  # Flower before 1.38 asks nobody who makes a message
    from flwr.supercore.task_identity import TaskIdentity

    for name in ("_task_id", "_run_id", "_node_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)
