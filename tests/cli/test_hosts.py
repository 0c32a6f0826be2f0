"""What the commands of hosts refuse before they do anything."""

import pytest

from flwr_agent.cli.hosts import of_itself

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
