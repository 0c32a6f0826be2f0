"""Imports point one way: envs <- flwr_agent <- strategies <- server_app, with flwr_agent.errors and .seeds as leaves."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from flwr_agent.paths import PACKAGES, ROOT

LEAVES = ("flwr_agent.errors", "flwr_agent.seeds")
REACHABLE = {
    "envs": ("envs", *LEAVES),
    "flwr_agent": ("flwr_agent", "envs"),
    "strategies": ("strategies", "flwr_agent"),
    "client_app": ("client_app", "flwr_agent", "envs"),
    "server_app": ("server_app", "strategies", "flwr_agent", "envs"),
}
COMPOSITION_ROOT = "flwr_agent/__main__.py"
HEAVY = (
    "torch",
    "transformers",
    "trl",
    "accelerate",
    "datasets",
    "peft",
    "deepspeed",
    "vllm",
    "matplotlib",
    "textworld",
)

HEAVY_HOMES = ("flwr_agent/rl/", "envs/alfworld/fast/")
"""Folders whose modules import heavy packages at import time; nothing imports these folders before it needs them."""


def sources() -> list[Path]:
    return sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))


def imported(nodes: Iterator[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "write absolute imports"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def at_import_time(tree: ast.AST) -> Iterator[ast.AST]:
    """Nodes that run when the module is imported: no function bodies, no `if TYPE_CHECKING` blocks."""
    for node in ast.iter_child_nodes(tree):
        typing_only = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) and not typing_only:
            yield node
            yield from at_import_time(node)


def is_under(name: str, roots: tuple[str, ...]) -> bool:
    return any(name == root or name.startswith(root + ".") for root in roots)


@pytest.mark.parametrize("path", sources(), ids=lambda path: path.relative_to(ROOT).as_posix())
def test_imports_obey_the_arrows(path: Path):
    where = path.relative_to(ROOT).as_posix()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    names = set(imported(ast.walk(tree)))
    if where != COMPOSITION_ROOT:
        own = {name for name in names if is_under(name, PACKAGES)}
        assert {name for name in own if not is_under(name, REACHABLE[path.relative_to(ROOT).parts[0]])} == set()
    if where.startswith("strategies/"):
        assert not any(is_under(name, ("flwr_agent.rl", "torch")) for name in names)
    if where.startswith("flwr_agent/rl/"):
        assert not any(is_under(name, ("flwr",)) for name in names)
    if not where.startswith(HEAVY_HOMES):
        assert {name for name in imported(at_import_time(tree)) if is_under(name, HEAVY)} == set()


def test_the_checker_sees_a_forbidden_import():
    tree = ast.parse("if True:\n    import torch\ndef f():\n    from flwr_agent.rl import trainer\n")
    assert set(imported(at_import_time(tree))) == {"torch"}
    assert set(imported(ast.walk(tree))) == {"torch", "flwr_agent.rl.trainer"}


def test_the_command_line_starts_without_torch_or_flower():
    code = "import sys, flwr_agent.cli.app; print(sorted({'torch', 'flwr', 'transformers', 'ray'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
