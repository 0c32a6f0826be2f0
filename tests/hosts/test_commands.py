from pathlib import Path
from types import SimpleNamespace

import pytest
from packaging.version import Version

from flwr_agent.errors import ConfigError
from flwr_agent.hosts import commands


@pytest.mark.parametrize(
    ("release", "address"),
    [
        ("1.32.1", ["--control-api-address", "127.0.0.1:5", "--serverappio-api-address", "127.0.0.1:6"]),
        ("1.37.0", ["--host", "127.0.0.1", "--port", "5"]),
        ("1.42.0", ["--host", "127.0.0.1", "--port", "5"]),
    ],
)
def test_a_simulation_is_told_its_address_in_the_way_its_flower_takes(release: str, address: list[str]):
    command = commands.simulation("127.0.0.1", 5, 6, Version(release))
    assert command[1:] == ["--insecure", "--simulation", *address]


def test_a_supernode_runs_apps_of_trusted_entities_alone_where_a_site_names_them():
    place = ("superlink.example.org:8000", Path("/ca.crt"), Path("/key"), 9094, "partition-id=0")
    assert "--trusted-entities" not in commands.supernode(*place)
    assert commands.supernode(*place, Path("/trusted.yaml"))[-2:] == ["--trusted-entities", "/trusted.yaml"]


def test_a_superlink_without_a_database_is_given_none():
    names = ("root", "certificate", "key", "secret")
    authority = SimpleNamespace(**dict.fromkeys(names, Path("/file")))
    assert commands.superlink(authority, "h", 1, Path("/state.db"))[5:7] == ["--database", "/state.db"]
    assert "--database" not in commands.superlink(authority, "h", 1, None)


def test_a_flower_that_cannot_deploy_is_refused_in_a_line_that_names_the_one_it_takes():
    with pytest.raises(ConfigError) as refusal:
        commands.check_deployment(Version("1.32.1"))
    assert str(refusal.value).startswith("flwr='1.32.1': ")
    assert "needs flwr >= 1.40" in str(refusal.value)
    commands.check_deployment(Version("1.42.0"))
