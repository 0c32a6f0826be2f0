"""The app's folder that Flower bundles: the checkout, or one put together from an installed package."""

from __future__ import annotations

import shutil
from importlib.metadata import version
from pathlib import Path

from flwr_agent.cli import keys
from flwr_agent.paths import CONF, IS_SOURCE, PACKAGES, ROOT

PYPROJECT = """\
[project]
name = "flwr-agent"
version = "{version}"
description = "Federated reinforcement learning of LLM agents"
license = "Apache-2.0"

[tool.flwr.app]
publisher = "flwr-agent"

[tool.flwr.app.components]
serverapp = "server_app.app:app"
clientapp = "client_app.app:app"

"""


def app_folder(scratch: Path) -> Path:
    """The folder to submit; under `scratch` if the package was installed without its checkout."""
    if IS_SOURCE:
        return ROOT
    folder = scratch / "app"
    for package in PACKAGES:
        shutil.copytree(ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__", "conf"))
    shutil.copytree(CONF, folder / "conf", dirs_exist_ok=True)
    text = PYPROJECT.format(version=version("flwr-agent")) + keys.to_toml()
    (folder / "pyproject.toml").write_text(text, encoding="utf-8")
    return folder
