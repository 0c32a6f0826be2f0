"""Run a command; end it and everything it started when standard input closes or SIGTERM arrives.

`python supervise.py COMMAND ...` holds the read end of its parent's pipe, so that a parent that is killed outright
still takes its servers, simulated clients and workers with it. It is started by path and imports nothing of the app.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
from types import FrameType

import psutil

GRACE_S = 10.0
"""Seconds between asking a process to end and ending it."""
PR_SET_CHILD_SUBREAPER = 36


def main(command: list[str]) -> int:
    """Exit code of the command, or 128 + SIGTERM when it was ended from outside."""
    signal.signal(signal.SIGTERM, _ended)
    if sys.platform == "linux":
        # Daemons whose own parent is gone become our children and stay within reach.
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:  # the end may come while the command is being started
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
        threading.Thread(target=_until_parent_is_gone, daemon=True).start()
        return process.wait()
    finally:
        _end_descendants()


def _ended(signum: int, _frame: FrameType | None) -> None:
    signal.signal(signum, signal.SIG_IGN)
    sys.exit(128 + signum)


def _until_parent_is_gone() -> None:
    while os.read(sys.stdin.fileno(), 1024):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def _end_descendants() -> None:
    """Ask all to end, then end those that stay, until none is left (an ending process may start another)."""
    timeout_s = GRACE_S
    while found := psutil.Process().children(recursive=True):
        for process in found:
            _signal(process, signal.SIGTERM if timeout_s else signal.SIGKILL)
        psutil.wait_procs(found, timeout=timeout_s or 1.0)
        timeout_s = 0.0


def _signal(process: psutil.Process, signum: int) -> None:
    try:
        process.send_signal(signum)
    except psutil.NoSuchProcess:
        return


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
