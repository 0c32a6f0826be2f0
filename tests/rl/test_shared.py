"""Tensors on their way between processes: whose folders are gone when their process is."""

import subprocess
import sys

from flwr_agent.rl import shared


def test_tensors_of_a_killed_process_are_swept_and_those_of_a_live_one_stay(tmp_path, monkeypatch):
    monkeypatch.setattr(shared, "YOUNG_S", -1.0)
    other = tmp_path / "flwr-agent-1000"
    other.mkdir()
    hold = (
        "import sys, pathlib; from flwr_agent.rl import shared\n"
        "folder = pathlib.Path(sys.argv[1]); folder.mkdir(); (folder / 'arrays.safetensors').touch()\n"
        "with shared.held(folder):\n    print(flush=True); input()"
    )
    folders = [tmp_path / f"{shared.PREFIX}{name}" for name in ("killed", "alive")]
    held = [
        subprocess.Popen([sys.executable, "-c", hold, folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for folder in folders
    ]
    for process in held:
        process.stdout.readline()
    shared.sweep(tmp_path)
    assert all(folder.is_dir() for folder in folders)
    held[0].kill()
    held[0].wait()
    shared.sweep(tmp_path)
    assert sorted(tmp_path.iterdir()) == [other, folders[1]]
    held[1].communicate(b"\n")


def test_a_folder_that_its_maker_does_not_hold_yet_is_left_to_it(tmp_path):
    folder = tmp_path / f"{shared.PREFIX}new"
    folder.mkdir()
    shared.sweep(tmp_path)
    assert folder.is_dir()
