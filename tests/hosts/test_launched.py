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


@pytest.mark.parametrize(("text", "message"), [("{", "is damaged"), ('{"where": {"kind": "x", "y": 1}}', "is damaged")])
def test_a_damaged_file_is_named(tmp_path: Path, text: str, message: str):
    (tmp_path / FILE).write_text(text, encoding="utf-8")
    with pytest.raises(ResumeError, match=message):
        Launch.read(tmp_path)


def test_a_folder_of_another_run_is_refused(tmp_path: Path):
    with pytest.raises(ResumeError, match=r"holds no launch\.json"):
        Launch.read(tmp_path)
