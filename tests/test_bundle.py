"""The app bundle that Flower sends to every host holds what the app needs and nothing else."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from flwr_agent.paths import PACKAGES, ROOT
from flwr_agent.rl.launch import child_env

LIMIT_BYTES = 10 * 1024 * 1024
"""What Flower accepts."""


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    folder = tmp_path_factory.mktemp("bundle")
    flwr = Path(sys.executable).with_name("flwr")
    subprocess.run(
        [flwr, "build", "--app", ROOT], cwd=folder, env=child_env(folder, threads=1), check=True, capture_output=True
    )
    return zipfile.ZipFile(next(folder.glob("*.fab")))


def test_bundle_holds_every_module_and_every_preset(bundle: zipfile.ZipFile):
    sources = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    wanted = {path.relative_to(ROOT).as_posix() for path in [*sources, *(ROOT / "conf").rglob("*.yaml")]}
    assert wanted - set(bundle.namelist()) == set()


def test_bundle_holds_no_tests_and_fits(bundle: zipfile.ZipFile):
    folders = {name.partition("/")[0] for name in bundle.namelist() if "/" in name}
    assert folders == {*PACKAGES, "conf", ".info"}
    assert sum(entry.compress_size for entry in bundle.infolist()) < LIMIT_BYTES


def test_bundle_has_the_checkout_s_code_hash(bundle: zipfile.ZipFile, tmp_path: Path):
    bundle.extractall(tmp_path)
    print_hash = "from flwr_agent.paths import ROOT, code_hash; print(ROOT, code_hash())"
    hashes = [
        subprocess.run(
            [sys.executable, "-c", print_hash], cwd=root, capture_output=True, text=True, check=True
        ).stdout.split()
        for root in (tmp_path, ROOT)
    ]
    assert [Path(where) for where, _ in hashes] == [tmp_path, ROOT]
    assert hashes[0][1] == hashes[1][1]
