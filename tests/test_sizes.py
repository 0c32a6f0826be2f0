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


def test_only_the_launcher_names_processes_and_the_environment():
    owners = {"flwr_agent/rl/launch.py", "flwr_agent/rl/spawn.py", "flwr_agent/rl/supervise.py"}
    users = {
        path.relative_to(ROOT).as_posix()
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
        if any(
            name in path.read_text(encoding="utf-8") for name in ("os.environ", "os.getenv", "subprocess.", "Popen(")
        )
    }
    assert {user for user in users if not user.startswith("envs/")} <= owners
