"""A long federation in simulation: the server's memory does not grow, and the ledger tells every round."""

import json
import sys
from pathlib import Path

import numpy as np
import psutil
import pytest
import runs

from flwr_agent.seeds import choose_clients

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.weekly, pytest.mark.timeout(3600)]
CLIENTS, A_ROUND, ROUNDS = 100, 2, 70
SETTLED = 10
"""Rounds after which whatever is loaded once is loaded."""
SLOPE_MB = 0.1


def server_of(command: psutil.Process) -> psutil.Process | None:
    """The process of the ServerApp and of Flower's grid."""
    for process in command.children(recursive=True):
        if any(Path(word).name == "flwr-simulation" for word in process.cmdline()):
            return process
    return None


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Run folder, and the server's memory in MB after each round."""
    folder = tmp_path_factory.mktemp("runs") / "long"
    policy = runs.policy(tmp_path_factory.mktemp("policy"))
    who = (f"federation.total_clients={CLIENTS}", f"federation.clients_per_round={A_ROUND}")
    process = runs.start(folder, policy, *who, f"federation.rounds={ROUNDS}", "evaluation.every=10")
    command, memory = psutil.Process(process.pid), []
    while process.poll() is None and len(memory) < ROUNDS:
        runs.wait_for(lambda: process.poll() is not None or len(runs.digests(folder)) > len(memory))
        if (server := server_of(command)) is not None:
            memory.append(server.memory_info().rss / 1e6)
    code, out, err = runs.finish(process)
    assert code == 0, out + err
    return folder, memory


def test_the_server_s_memory_does_not_grow_with_the_rounds(run):
    _, memory = run
    assert len(memory) >= ROUNDS - 3
    slope = np.polyfit(range(len(memory) - SETTLED), memory[SETTLED:], 1)[0]
    ends = f"{memory[SETTLED]:.0f} MB after round {SETTLED}, {memory[-1]:.0f} MB at the end"
    sys.stdout.write(f"\nserver: {ends}, {slope:+.3f} MB a round\n")
    assert slope <= SLOPE_MB


def test_the_ledger_tells_every_client_of_every_round(run):
    folder, _ = run
    rounds = runs.lines(folder, "round")
    assert [line["round"] for line in rounds] == list(range(1, ROUNDS + 1))
    for line in rounds:
        assert line["clients"] == choose_clients(42, line["round"], CLIENTS, A_ROUND)
    clients = [
        (line["round"], line["client_id"]) for line in runs.lines(folder, "client") if line["status"] == "accepted"
    ]
    assert clients == [(line["round"], client) for line in rounds for client in line["clients"]]
    assert [line["round"] for line in runs.lines(folder, "evaluation")] == [0, *range(10, ROUNDS + 1, 10)]
    assert len({line["digest"] for line in rounds}) == ROUNDS
    summary = json.loads((folder / "federated_summary.json").read_text())
    assert summary["loop_completed"]
    assert len(summary["rounds"]) == ROUNDS
