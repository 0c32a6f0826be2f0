import json
import os
from pathlib import Path

import psutil
import pytest

from flwr_agent.errors import ResumeError
from flwr_agent.hosts.launched import FILE, SUPERLINK, Launch, Where


def test_a_launch_is_read_back_as_it_was_written(tmp_path: Path):
    where = Where(kind=SUPERLINK, superlink="superlink.example.org:8000", root_certificates="/etc/ca.crt")
    launch = Launch(where=where, settings={"seed": 7, "trainer.lr": 1e-6, "env.name": "tinyguess"}, run_id=2**63)
    launch.write(tmp_path)
    assert Launch.read(tmp_path) == launch


def test_the_follower_is_this_process_and_none_that_has_taken_its_id(tmp_path: Path):
    launch = Launch(where=Where(), settings={}, run_id=1)
    assert launch.follower() == psutil.Process()
    assert Launch(where=Where(), settings={}, run_id=1, created=launch.created - 60).follower() is None
    assert Launch(where=Where(), settings={}, run_id=1, pid=2**22 - 1).follower() is None


def whole(**changed: object) -> str:
    return json.dumps({"where": {"kind": SUPERLINK}, "settings": {}, "run_id": 7, "pid": 5, "created": 1.0} | changed)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is damaged"),
        ("[]", "is damaged"),
        ('{"where": {"kind": "x", "y": 1}}', "is damaged"),
        (whole(where={"superlink": None}), r"is damaged \(where\.superlink is None\)"),
        (whole(where={"kind": "swarm"}), r"is damaged \(where\.kind is 'swarm'\)"),
        (whole(where=None), "is damaged"),
        (whole(folder=3), r"is damaged \(folder is 3\)"),
    ],
)
def test_a_damaged_file_is_named(tmp_path: Path, text: str, message: str):
    (tmp_path / FILE).write_text(text, encoding="utf-8")
    with pytest.raises(ResumeError, match=message):
        Launch.read(tmp_path)


def test_a_folder_of_another_run_is_refused(tmp_path: Path):
    with pytest.raises(ResumeError, match=r"holds no launch\.json"):
        Launch.read(tmp_path)


def other(**process: float) -> Launch:
    """A start by the process that started this one."""
    parent = psutil.Process(os.getppid())
    return Launch(
        where=Where(), settings={}, run_id=1, **({"pid": parent.pid, "created": parent.create_time()} | process)
    )


def test_a_start_that_another_process_follows_is_not_replaced(tmp_path: Path):
    other().write(tmp_path)
    before = (tmp_path / FILE).read_bytes()
    with pytest.raises(ResumeError, match=rf"{tmp_path} is running \(process {os.getppid()}\); stop it first"):
        Launch(where=Where(), settings={}, run_id=2).write(tmp_path)
    assert (tmp_path / FILE).read_bytes() == before


@pytest.mark.parametrize("text", ["", "[]", whole(pid=2**22 - 1)])
def test_a_start_that_nobody_follows_gives_way(tmp_path: Path, text: str):
    (tmp_path / FILE).write_text(text, encoding="utf-8")
    launch = Launch(where=Where(), settings={}, run_id=2)
    launch.write(tmp_path)
    launch.write(tmp_path)
    assert Launch.read(tmp_path) == launch


def test_the_file_is_void_in_a_copy_of_its_folder_and_holds_under_any_name_of_its_own(tmp_path: Path):
    run, copy, link = (tmp_path / name for name in ("run", "copy", "link"))
    run.mkdir()
    copy.mkdir()
    link.symlink_to(run)
    other().write(run)
    (copy / FILE).write_bytes((run / FILE).read_bytes())
    assert Launch.read(run).is_of(link)
    assert not Launch.read(copy).is_of(copy)
    Launch(where=Where(), settings={}, run_id=2).write(copy)
    (run / FILE).write_text(whole(), encoding="utf-8")
    assert Launch.read(run).is_of(run), "a file that does not say"


def test_a_file_that_cannot_be_written_is_named_and_leaves_nothing(tmp_path: Path):
    (tmp_path / FILE).mkdir()
    with pytest.raises(OSError, match="directory") as refused:
        Launch(where=Where(), settings={}, run_id=1).write(tmp_path)
    assert refused.value.filename == str(tmp_path / FILE)
    assert [path.name for path in tmp_path.iterdir()] == [FILE]
