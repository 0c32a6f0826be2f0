import re
import sys
import types

from flwr_agent.paths import ROOT


def test_the_pages_own_environment_is_short_and_keeps_the_contract(monkeypatch):
    page = (ROOT / "docs" / "environments.md").read_text(encoding="utf-8")
    environment, use = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    assert len(environment.splitlines()) < 40
    module = types.ModuleType("my_package")
    exec(environment, vars(module))  # noqa: S102
    monkeypatch.setitem(sys.modules, "my_package", module)
    names = {}
    exec(use, names)  # noqa: S102
    assert names["problems"] == []
