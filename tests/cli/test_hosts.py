"""What the commands of hosts refuse before they do anything."""

import sys

import pytest

from flwr_agent.__main__ import main
from flwr_agent.cli.hosts import of_itself
from flwr_agent.cli.options import address
from flwr_agent.hosts import network
from flwr_agent.hosts.certificates import make_authority, make_key
from flwr_agent.hosts.finding import Finding, Verdict

SITE = ("site", "--superlink", "127.0.0.1:1", "--key", "key", "--partition-id", 0)


def test_a_site_that_would_not_be_protected_as_it_says_does_not_start(refused, tmp_path):
    assert "privacy.mod='localdp': is no setting of a site" in refused(*SITE, "privacy.mod=localdp")
    assert "privacy.local_epsilon='lots'" in refused(*SITE, "privacy.local_epsilon=lots")
    assert f"site='{tmp_path}/nosuch.yaml'" in refused(*SITE, f"site={tmp_path}/nosuch.yaml")
    (tmp_path / "site.yaml").write_text("only: [")
    assert "site.yaml:1: YAML" in refused(*SITE, f"site={tmp_path}/site.yaml")


def test_a_site_s_file_is_found_from_any_folder(tmp_path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "site.yaml").write_text("use: {model.path: /m}")
    monkeypatch.chdir(tmp_path)
    assert of_itself({"site": "site.yaml", "room": 4}) == {"site": str(tmp_path / "site.yaml"), "room": 4}


@pytest.mark.parametrize(
    "wrong",
    [
        "host",
        ":8000",
        "host:",
        "host:port",
        "host:0",
        "host:65536",
        'a"b:80',
        "a b:80",
        "https://host:80",
        "host:80/",
        "::1:80",
    ],
)
def test_an_address_that_is_none_is_refused_in_one_line_by_every_command(refused, tmp_path, wrong):
    public = make_key(tmp_path / "site")
    for command in (("register", public), ("superexec", tmp_path), SITE[:1] + SITE[3:], ("doctor",)):
        assert f"--superlink={wrong!r}: is no HOST:PORT, such as" in refused(*command, "--superlink", wrong)
    if ":" in wrong:
        assert "is no HOST:PORT" in refused("run", "--preset", "tinyguess", "--dry-run", "--superlink", wrong)


@pytest.mark.parametrize("right", ["", "superlink.example.org:8000", "127.0.0.1:1", "[::1]:65535"])
def test_an_address_is_taken_as_it_is(right):
    assert address(right) == right


@pytest.mark.parametrize("command", ["superlink", "superexec"])
@pytest.mark.parametrize("lost", ["ca.crt", "superexec.secret"])
def test_a_folder_without_a_file_of_its_own_is_refused_with_the_command_that_makes_it(refused, tmp_path, command, lost):
    made = make_authority(tmp_path, ["localhost"])
    (made.folder / lost).unlink()
    assert f"folder='{tmp_path}': lacks {lost}; `flwr-agent certificates`" in refused(command, tmp_path)


def test_a_key_is_not_registered_where_the_superlink_is_not_trusted(monkeypatch, capsys, tmp_path):
    distrust = Finding("superlink", Verdict.FAIL, "a:1 is not trusted: ca.crt is old", "copy it")
    monkeypatch.setattr(network, "superlink", lambda *_: iter([distrust]))
    monkeypatch.setattr(sys, "argv", ["flwr-agent", "register", str(make_key(tmp_path / "site")), "--superlink", "a:1"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 1
    assert "superlink: a:1 is not trusted: ca.crt is old; copy it" in capsys.readouterr().err
