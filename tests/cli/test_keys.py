import tomllib

from flwr.common.config import flatten_dict

from flwr_agent.cli import keys
from flwr_agent.config import KEYS
from flwr_agent.paths import ROOT


def test_flower_lets_a_run_override_every_key_and_no_other():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    block = flatten_dict(project["tool"]["flwr"]["app"]["config"])
    assert block == dict.fromkeys(["preset", *KEYS], "")


def test_printed_block_is_the_one_in_pyproject():
    assert keys.to_toml() in (ROOT / "pyproject.toml").read_text(encoding="utf-8")


def test_configuration_page_is_the_generated_one():
    page = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    assert page == keys.to_markdown(), "run: python -m flwr_agent config --markdown > docs/configuration.md"


def test_every_key_is_documented():
    assert all(key.doc for key in keys.listed())
