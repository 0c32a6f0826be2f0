"""The page in a real browser: nothing on its console, every figure there, readable on a phone."""

import shutil

import pytest
from ledgers import run_folder
from report.browser import look

from flwr_agent.report.write import write


@pytest.fixture(scope="module")
def chromium(request: pytest.FixtureRequest) -> str:
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if path is None and not request.config.getoption("--require-chromium"):
        pytest.skip("needs Chromium: apt-get install chromium")
    assert path, "Chromium is missing"
    return path


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    folder = run_folder(tmp_path_factory.mktemp("page") / "run")
    return write([folder], folder)


def test_a_phone_shows_every_figure_whole_and_in_letters_one_can_read(chromium, page, tmp_path):
    found, console = look(chromium, page, tmp_path, width=400)
    assert console == []
    assert found["hidden"] == []
    assert len(found["figures"]) == page.read_text().count("<figure id=")
    assert found["width"] <= 400
    assert found["paragraph"] >= 14
    for name, figure in found["figures"].items():
        assert 0 <= figure["left"] < figure["right"] <= 400, name
        assert figure["height"] > 150, name
        assert figure["texts"] > 3, name
        assert figure["letter"] >= 8, name


def test_the_probe_sees_a_console_error_and_a_figure_that_does_not_fit(chromium, tmp_path):
    page = tmp_path / "bad.html"
    wide = '<figure id="wide"><svg width="900" height="200"><text y="9" font-size="4">x</text></svg></figure>'
    page.write_text(f"<!doctype html><p>text</p>{wide}<script>console.error('broken')</script>")
    found, console = look(chromium, page, tmp_path, width=400)
    assert len(console) == 1
    assert "broken" in console[0]
    assert found["width"] > 400
    assert found["figures"]["wide"]["letter"] < 8
