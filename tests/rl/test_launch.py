import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from flwr_agent.paths import ROOT
from flwr_agent.rl import launch

FAMILY = """
import subprocess, sys, time
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print("up", flush=True)
time.sleep(600)
"""
"""A command with a child, and with a daemon in a session of its own."""


def wait_for(condition, timeout_s: float = 15.0) -> bool:
    end = time.monotonic() + timeout_s
    while not condition() and time.monotonic() < end:
        time.sleep(0.05)
    return condition()


def family_of(pid: int) -> list[psutil.Process]:
    return psutil.Process(pid).children(recursive=True)


def test_what_a_command_started_ends_with_the_block(tmp_path: Path):
    log = tmp_path / "log"
    with launch.supervised(
        [sys.executable, "-c", FAMILY], tmp_path, launch.child_env(tmp_path, threads=1), log
    ) as process:
        assert wait_for(lambda: log.read_text() == "up\n")
        family = family_of(process.pid)
        assert len(family) == 3
    assert not any(member.is_running() for member in family)


def test_what_ends_at_once_leaves_nothing_behind(tmp_path: Path):
    command = [sys.executable, "-c", FAMILY, str(tmp_path)]
    for _ in range(5):
        with launch.supervised(command, tmp_path, launch.child_env(tmp_path, threads=1), tmp_path / "log"):
            pass
    assert not [p for p in psutil.process_iter(["cmdline"]) if str(tmp_path) in (p.info["cmdline"] or [])]


def test_what_a_command_started_ends_when_its_launcher_is_killed(tmp_path: Path):
    log = tmp_path / "log"
    code = (
        "import os, sys, time; from pathlib import Path; from flwr_agent.rl import launch\n"
        f"with launch.supervised([sys.executable, '-c', {FAMILY!r}], Path({str(tmp_path)!r}), os.environ, Path({str(log)!r})):\n"
        "    time.sleep(600)"
    )
    launcher = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT)
    assert wait_for(lambda: log.is_file() and log.read_text() == "up\n")
    family = family_of(launcher.pid)
    launcher.kill()
    launcher.wait()
    assert len(family) == 4
    assert wait_for(lambda: not any(member.is_running() for member in family))


def test_sigterm_unwinds_what_was_started(tmp_path: Path):
    log = tmp_path / "log"
    code = (
        "import os, sys, time; from pathlib import Path; from flwr_agent.rl import launch\n"
        "launch.end_on_sigterm()\n"
        f"with launch.supervised([sys.executable, '-c', {FAMILY!r}], Path({str(tmp_path)!r}), os.environ, Path({str(log)!r})):\n"
        "    time.sleep(600)"
    )
    launcher = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT)
    assert wait_for(lambda: log.is_file() and log.read_text() == "up\n")
    family = family_of(launcher.pid)
    launcher.terminate()
    assert launcher.wait() == 128 + signal.SIGTERM
    assert not any(member.is_running() for member in family)


def test_a_command_that_ends_by_itself_keeps_its_exit_code(tmp_path: Path):
    with launch.supervised(
        [sys.executable, "-c", "raise SystemExit(7)"], tmp_path, launch.child_env(tmp_path, threads=1), tmp_path / "log"
    ) as process:
        assert process.wait(timeout=30) == 7


def test_free_ports_are_distinct_and_below_the_ephemeral_range():
    ports = launch.free_ports(50)
    assert len(set(ports)) == 50
    assert all(20_000 <= port < 32_768 for port in ports)


def test_children_cannot_import_the_checkout_instead_of_the_app(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([".", str(tmp_path)]))
    assert launch.child_env(tmp_path, threads=3)["PYTHONPATH"] == str(tmp_path)


def test_children_neither_phone_home_nor_install(tmp_path: Path):
    env = launch.child_env(tmp_path, threads=3)
    assert env["FLWR_TELEMETRY_ENABLED"] == "0"
    assert env["FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION"] == "1"
    assert (env["FLWR_HOME"], env["OMP_NUM_THREADS"]) == (str(tmp_path), "3")


@pytest.mark.parametrize(
    ("visible", "devices"), [("", []), ("-1", []), ("0", ["0"]), ("GPU-8a, GPU-9b", ["GPU-8a", "GPU-9b"])]
)
def test_gpus_are_those_that_are_visible(monkeypatch: pytest.MonkeyPatch, visible: str, devices: list[str]):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert launch.visible_gpus() == devices


def test_processes_share_the_visible_gpus_in_turn_by_position(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5")
    assert [launch.pinned({}, i)["CUDA_VISIBLE_DEVICES"] for i in range(3)] == ["4", "5", "4"]


@pytest.mark.parametrize(
    ("gpus", "devices"),
    [(0.5, ["4", "4", "7", "7", "4"]), (2.0, ["4,7", "4,7", "4,7"]), (3.0, ["4,7"]), (1 / 3, ["4", "4", "4", "7"])],
)
def test_fractions_share_a_visible_gpu_and_groups_take_several(monkeypatch, gpus: float, devices: list[str]):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,7")
    assert [launch.pinned({}, i, gpus=gpus)["CUDA_VISIBLE_DEVICES"] for i in range(len(devices))] == devices


def test_without_gpus_nothing_is_pinned(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert launch.pinned({"A": "b"}, 0) == {"A": "b"}
