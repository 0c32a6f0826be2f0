"""What lies in deploy/ names commands, options and settings that there are."""

import re
import shlex
from pathlib import Path

import pytest
import typer
import yaml

from flwr_agent.cli.app import app
from flwr_agent.paths import ROOT

DEPLOY = ROOT / "deploy"
UNITS = {
    "flwr-agent-superlink.service": "superlink.env",
    "flwr-agent-superexec.service": "superlink.env",
    "flwr-agent-site@.service": "site.env",
}


def options_of(command: str) -> set[str]:
    return {option for param in typer.main.get_command(app).commands[command].params for option in param.opts}


def settings_of(file: Path) -> set[str]:
    return {line.partition("=")[0] for line in file.read_text().splitlines() if line and not line.startswith("#")}


def check_command(words: list[str]) -> None:
    command, *rest = words
    assert {word for word in rest if word.startswith("--")} <= options_of(command)


@pytest.mark.parametrize(("unit", "settings"), UNITS.items())
def test_a_unit_calls_a_command_with_options_it_has_and_settings_its_file_gives(unit: str, settings: str):
    text = (DEPLOY / unit).read_text()
    program, *words = shlex.split(re.search(r"^ExecStart=(.*)$", text, re.MULTILINE)[1])
    assert program == "/opt/flwr-agent/bin/flwr-agent"
    check_command(words)
    used = set(re.findall(r"\$\{?([A-Z_]+)\}?", " ".join(words)))
    assert used <= settings_of(DEPLOY / settings)
    assert "Restart=always" in text


def test_every_unit_is_looked_at():
    assert {path.name for path in DEPLOY.glob("*.service")} == set(UNITS)


def test_the_compose_file_calls_commands_with_options_they_have():
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    assert set(services) == {"superlink", "superexec", "site"}
    for name, service in services.items():
        words = shlex.split(re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", service["command"]))
        assert words[0] == name
        check_command(words)
        assert service["restart"] == "always"


def test_the_page_s_commands_have_the_options_it_gives_them():
    page = (ROOT / "docs" / "deployment.md").read_text().replace("\\\n", " ")
    blocks = "\n".join(re.findall(r"```sh\n(.*?)```", page, re.DOTALL))
    lines = [line.partition("#")[0] for line in blocks.splitlines() if line.startswith("flwr-agent ")]
    assert len(lines) >= 10
    for line in lines:
        check_command(shlex.split(re.sub(r"[][]", " ", line))[1:])


@pytest.mark.parametrize("file", [".gitignore", ".dockerignore"])
def test_keys_that_the_page_makes_beside_the_files_get_into_no_commit_and_no_image(file: str):
    lines = {line.strip("/") for line in (ROOT / file).read_text().splitlines()}
    assert {"deploy/certificates", "deploy/site"} <= lines
    assert all(name in (ROOT / "docs" / "deployment.md").read_text() for name in ("deploy/certificates", "deploy/site"))
