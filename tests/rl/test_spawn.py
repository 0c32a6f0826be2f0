"""What is known of a worker's process from outside."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil

from flwr_agent.rl import spawn


def wait_for(condition, timeout_s: float = 30.0) -> bool:
    end = time.monotonic() + timeout_s
    while not condition() and time.monotonic() < end:
        time.sleep(0.02)
    return condition()


def test_work_is_told_from_standing_still_by_processor_time(tmp_path):
    address = str(tmp_path / "a-1.sock")
    process = subprocess.Popen([sys.executable, "-c", "while True: pass", address])
    Path(f"{address}.pid").write_text(str(process.pid))
    before = spawn.spent(address)
    assert wait_for(lambda: spawn.spent(address) > before)
    process.send_signal(signal.SIGSTOP)
    assert wait_for(lambda: psutil.Process(process.pid).status() == psutil.STATUS_STOPPED)
    assert spawn.spent(address) == spawn.spent(address) > 0
    process.kill()
    process.wait()
    assert spawn.spent(address) == 0
