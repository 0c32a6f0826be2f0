import asyncio
import re
import sys
import types

import pytest

from envs.check import play
from envs.registry import create
from flwr_agent.paths import ROOT

PAGE = (ROOT / "docs" / "environments.md").read_text(encoding="utf-8")
ENVIRONMENT, USE, VERIFIER, BRIDGES = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)


@pytest.fixture
def my_package(monkeypatch):
    module = types.ModuleType("my_package")
    exec(ENVIRONMENT, vars(module))  # noqa: S102
    exec(VERIFIER, vars(module))  # noqa: S102
    monkeypatch.setitem(sys.modules, "my_package", module)


def test_the_pages_own_environment_is_short_and_keeps_the_contract(my_package):
    assert len(ENVIRONMENT.splitlines()) < 40
    names = {}
    exec(USE, names)  # noqa: S102
    assert names["problems"] == []


def test_the_pages_verifier_scores_the_pages_environment(my_package):
    adapter = create("my_package:Countdown", {"verifier": "my_package:brief"})
    task = adapter.tasks("train")[0]
    for actions, reward in ((["3", "2", "1", "0"], 1.0), (["3", "?", "2", "1", "0"], 0.5), (["?"] * 6, 0.0)):
        assert asyncio.run(play(adapter, task, actions, seed=0))[-1].reward == reward


def test_the_pages_bridges_are_there():
    pytest.importorskip("gymnasium")
    pytest.importorskip("datasets")
    names = {}
    exec(BRIDGES, names)  # noqa: S102
    assert names["tasks"] == list(names["lake"].tasks("train"))
    assert names["theirs"].tasks("val")[1_318].meta["index"] == 1_318
    names["shop"].close()
