"""The files around the code: they parse, stay small, and say the same in both places where something is said twice."""

import re
import subprocess
import tomllib

import pytest
import yaml
from check_files import problem

from flwr_agent.paths import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


@pytest.fixture(scope="module")
def tracked():
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False).stdout
    if not listed:
        pytest.skip("not a git checkout")
    return [ROOT / line for line in listed.splitlines() if (ROOT / line).is_file()]


def test_every_file_parses_and_is_small(tracked):
    assert [text for path in tracked if (text := problem(path))] == []


def test_the_check_sees_what_is_wrong(tmp_path):
    bad, large = tmp_path / "bad.yaml", tmp_path / "large.bin"
    bad.write_text("a: [")
    large.write_bytes(b"0" * 500_001)
    assert "bad.yaml" in problem(bad)
    assert "more than 500,000" in problem(large)


def test_links_between_pages_lead_somewhere(tracked):
    links = [
        (page, target)
        for page in tracked
        if page.suffix == ".md"
        for target in re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8"))
        if "://" not in target
    ]
    assert links
    assert [f"{page.name}: {target}" for page, target in links if not (page.parent / target).exists()] == []


def test_the_citation_names_the_version_and_the_licence_of_the_package():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert (citation["version"], citation["license"]) == (PROJECT["version"], PROJECT["license"])


def test_the_workflow_is_the_gate():
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8"))["jobs"]
    assert "bash .ci/run" in [step.get("run") for step in jobs["gate"]["steps"]]
    assert "bash .ci/e2e" in [step.get("run") for step in jobs["e2e"]["steps"]]


def test_every_extra_that_an_error_names_exists():
    named = set()
    for package in ("flwr_agent", "envs", "server_app", "client_app", "strategies"):
        for path in (ROOT / package).rglob("*.py"):
            named |= set(re.findall(r"flwr-agent\[([a-z-]+)\]", path.read_text(encoding="utf-8")))
    assert named <= set(PROJECT["optional-dependencies"])
