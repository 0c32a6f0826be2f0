from pathlib import Path

import pytest

from flwr_agent.writable import whole, why_no_file, why_no_folder


def test_a_place_that_can_be_written_has_no_objection_and_is_not_made(tmp_path: Path):
    (tmp_path / "old.json").touch()
    assert not why_no_file(tmp_path / "old.json")
    assert not why_no_file(tmp_path / "deep" / "er" / "new.json")
    assert not why_no_folder(tmp_path)
    assert not why_no_folder(tmp_path / "deep" / "er")
    assert [path.name for path in tmp_path.iterdir()] == ["old.json"]


def test_a_place_that_cannot_be_written_is_named_with_the_reason(tmp_path: Path):
    file = tmp_path / "file"
    file.touch()
    assert why_no_file(tmp_path) == f"{tmp_path} is a folder"
    assert why_no_file(file / "x") == why_no_folder(file / "x") == why_no_folder(file) == f"{file} is a file"
    assert why_no_folder(Path("/proc/x/y")).startswith("/proc cannot be written (")
    assert why_no_file(Path("/proc/x")).startswith("/proc cannot be written (")
    assert "too long" in why_no_file(tmp_path / ("x" * 300))


@pytest.mark.parametrize("is_folder", [False, True])
def test_what_is_written_appears_whole_and_touches_nothing_beside_it(tmp_path: Path, is_folder: bool):
    mine = tmp_path / "out.tmp"
    mine.mkdir()
    out = tmp_path / "out"
    with whole(out) as unfinished:
        if is_folder:
            unfinished.mkdir()
        else:
            unfinished.write_text("1")
        assert not out.exists()
    assert (out.is_dir(), mine.is_dir()) == (is_folder, True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "out.tmp"]


def test_what_fails_on_the_way_leaves_nothing(tmp_path: Path):
    def broken() -> None:
        with whole(tmp_path / "out") as unfinished:
            unfinished.write_text("half")
            raise KeyError

    with pytest.raises(KeyError):
        broken()
    assert not list(tmp_path.iterdir())
