import ast
from pathlib import Path

import pytest

from flwr_agent.paths import PACKAGES, ROOT

SOURCES = sorted(path for package in (*PACKAGES, "tests") for path in (ROOT / package).rglob("*.py"))


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_files_and_functions_stay_small(path: Path):
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 400
    functions = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    assert [f.name for f in functions if f.end_lineno - f.lineno + 1 > 50] == []


def users(*names: str) -> set[str]:
    """Modules of ours, beside the environments, that mention one of these."""
    files = [path for package in PACKAGES if package != "envs" for path in (ROOT / package).rglob("*.py")]
    return {
        path.relative_to(ROOT).as_posix()
        for path in files
        if any(name in path.read_text(encoding="utf-8") for name in names)
    }


def test_only_the_launcher_names_the_environment():
    assert users("os.environ", "os.getenv") == {"flwr_agent/rl/launch.py"}


def test_processes_are_started_in_few_places():
    owners = {"flwr_agent/rl/launch.py", "flwr_agent/rl/spawn.py", "flwr_agent/rl/supervise.py"}
    assert users("subprocess.", "Popen(") <= owners
