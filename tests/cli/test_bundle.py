"""The package without its checkout, as a wheel would lay it out."""

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from flwr_agent.paths import PACKAGES, ROOT, code_hash


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder like `site-packages`, with the presets where package data puts them and a foreign `conf`."""
    site = tmp_path_factory.mktemp("site")
    for package in PACKAGES:
        shutil.copytree(ROOT / package, site / package, ignore=shutil.ignore_patterns("__pycache__", "conf"))
    shutil.copytree(ROOT / "conf", site / "flwr_agent" / "conf")
    (site / "conf").mkdir()
    facts = site / "flwr_agent-9.9.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: flwr-agent\nVersion: 9.9\n")
    return site


def test_an_installed_package_has_the_checkout_s_presets_and_code_hash(installed: Path, tmp_path: Path):
    ask = "from flwr_agent import presets; from flwr_agent.paths import code_hash; print(code_hash(), *presets.names())"
    done = subprocess.run(
        [sys.executable, "-c", ask], cwd=tmp_path, env={"PYTHONPATH": str(installed)}, capture_output=True, text=True
    )
    assert done.stdout.split() == [code_hash(), *sorted(path.stem for path in (ROOT / "conf").glob("*.yaml"))]


def test_the_app_of_an_installed_package_is_the_checkout_s(installed: Path, tmp_path: Path):
    code = "from pathlib import Path; from flwr_agent.cli import bundle; print(bundle.app_folder(Path('scratch')))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env={"PYTHONPATH": str(installed)}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    folder = tmp_path / done.stdout.strip()
    ours, theirs = (tomllib.loads((at / "pyproject.toml").read_text())["tool"]["flwr"]["app"] for at in (ROOT, folder))
    assert theirs["config"] == ours["config"]
    assert theirs["components"] == ours["components"]
    ask = "from flwr_agent.paths import ROOT, code_hash; print(ROOT, code_hash())"
    done = subprocess.run([sys.executable, "-c", ask], cwd=folder, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(folder), code_hash()]


def test_a_wheel_takes_every_preset_and_deepspeed_configuration_as_package_data():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    patterns = project["tool"]["setuptools"]["package-data"]["flwr_agent"]
    taken = {path.resolve() for pattern in patterns for path in (ROOT / "flwr_agent").glob(pattern)}
    assert {path.resolve() for kind in ("yaml", "json") for path in (ROOT / "conf").rglob(f"*.{kind}")} <= taken
