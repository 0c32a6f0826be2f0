import sys
import time
from contextlib import nullcontext
from pathlib import Path

import pytest

from flwr_agent.faults import Fault
from flwr_agent.hosts import service
from flwr_agent.hosts.rehearsal import CLIENT_APP, Rehearsal
from flwr_agent.hosts.service import Service
from flwr_agent.hosts.superlink import LaunchError
from flwr_agent.rl import launch

SLEEP = "import time; print('up', flush=True); time.sleep(600)"


def wait_for(condition, timeout_s: float = 30.0) -> bool:
    end = time.monotonic() + timeout_s
    while not condition() and time.monotonic() < end:
        time.sleep(0.05)
    return condition()


def started(folder: Path, code: str, *arguments: str, **kept: float) -> Service:
    command = [sys.executable, "-c", code, *arguments]
    return Service(command, folder, launch.child_env(folder, threads=1), folder / "node.log", **kept)


def num_starts(folder: Path) -> int:
    log = folder / "node.log"
    return log.read_text().count("up") if log.is_file() else 0


def test_a_process_that_died_is_started_again_after_a_while(tmp_path: Path):
    with started(tmp_path, "print('up', flush=True)", restart_s=0.2) as node:
        assert wait_for(lambda: not node.is_up())
        assert wait_for(lambda: node.tend() or num_starts(tmp_path) == 2)


def test_a_process_that_may_not_die_is_an_error_with_its_last_words(tmp_path: Path):
    with started(tmp_path, "raise SystemExit('no such device')", max_restarts=0) as node:
        assert wait_for(lambda: not node.is_up())
        with pytest.raises(LaunchError, match=r"node ended: no such device \(log: .*node.log\)"):
            node.tend()


@pytest.mark.parametrize(("steady_s", "is_given_up"), [(60.0, True), (0.0, False)])
def test_only_deaths_in_a_row_count_against_a_process(monkeypatch: pytest.MonkeyPatch, tmp_path, steady_s, is_given_up):
    monkeypatch.setattr(service, "STEADY_S", steady_s)
    with started(tmp_path, "print('up', flush=True)", max_restarts=1, restart_s=0.0) as node:
        assert wait_for(lambda: not node.is_up())
        node.tend()
        assert wait_for(lambda: not node.is_up())
        with pytest.raises(LaunchError) if is_given_up else nullcontext():
            node.tend()
        assert wait_for(lambda: num_starts(tmp_path) == 3 - is_given_up)


def test_a_killed_process_stays_down_until_it_is_released(tmp_path: Path):
    with started(tmp_path, SLEEP, restart_s=0.0) as node:
        assert wait_for(lambda: num_starts(tmp_path) == 1)
        node.kill()
        node.tend()
        assert not node.is_up()
        node.release()
        assert node.is_up()
        assert wait_for(lambda: num_starts(tmp_path) == 2)
    assert not node.is_up()


CHILD = "import subprocess, sys; subprocess.run([sys.executable, sys.argv[1]])"
"""A node at work, whose child is a ClientApp by the name of its program."""


def test_a_rehearsal_kills_a_node_at_work_in_its_round_and_lets_it_come_back(tmp_path: Path):
    finished = [0]
    program = tmp_path / CLIENT_APP
    program.write_text(SLEEP)
    with started(tmp_path, CHILD, str(program)) as node:
        assert wait_for(lambda: num_starts(tmp_path) == 1)
        schedule = [Fault(client=1, killed_in=2, back_in=4)]
        rehearsal = Rehearsal(schedule, {"supernode-1": node}, lambda: finished[0])
        rehearsal.step()
        assert node.is_up(), "round 1"
        finished[0] = 1
        rehearsal.step()
        assert not node.is_up(), "round 2"
        finished[0] = 2
        rehearsal.step()
        assert not node.is_up(), "round 3"
        finished[0] = 3
        rehearsal.step()
        assert node.is_up(), "round 4"


def test_a_node_that_has_nothing_to_do_is_killed_when_it_has(tmp_path: Path):
    finished = [1]
    with started(tmp_path, SLEEP) as node:
        rehearsal = Rehearsal([Fault(client=0, killed_in=2)], {"supernode-0": node}, lambda: finished[0])
        rehearsal.step()
        assert node.is_up(), "its round has not reached it"
        finished[0] = 2
        rehearsal.step()
        assert not node.is_up(), "its round is over"
