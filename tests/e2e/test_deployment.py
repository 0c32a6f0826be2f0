"""A federation of hosts on loopback: TLS, keys, processes of their own, kills; against the simulation, bit for bit."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import runs

from flwr_agent.paths import ROOT
from flwr_agent.rl import launch

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(1800)]
SCHEDULE = "- {client: 1, killed_in: 2, back_in: 3}\n"
THREE = ("federation.total_clients=3", "federation.clients_per_round=3")


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return runs.policy(tmp_path_factory.mktemp("policy"))


def done(process: subprocess.Popen[str]) -> str:
    """What a command printed; it must have succeeded."""
    code, out, err = runs.finish(process)
    assert code == 0, out + err
    return out


def command(home: Path, *arguments: object) -> subprocess.Popen[str]:
    """Start `python -m flwr_agent ARGUMENTS`."""
    return subprocess.Popen(
        [sys.executable, "-m", "flwr_agent", *map(str, arguments)],
        cwd=home,
        env={"PYTHONPATH": str(ROOT), "HOME": str(home), "PATH": "/usr/bin:/bin"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def accepted(folder: Path) -> list[tuple[int, list[int]]]:
    """Round and the clients in its model."""
    return [(line["round"], line["clients"]) for line in runs.lines(folder, "round")]


def test_a_killed_supernode_that_comes_back_gives_the_weights_of_the_simulation_of_its_schedule(policy, tmp_path):
    schedule = tmp_path / "faults.yaml"
    schedule.write_text(SCHEDULE)
    settings = (*THREE, "federation.retries=0", f"federation.faults={schedule}")
    simulated, deployed = tmp_path / "simulated", tmp_path / "deployed"
    done(runs.start(simulated, policy, *settings))
    done(runs.start(deployed, policy, *settings, "--deployment"))
    assert accepted(simulated) == accepted(deployed) == [(1, [0, 1, 2]), (2, [0, 2]), (3, [0, 1, 2])]
    assert runs.digests(simulated) == runs.digests(deployed)
    assert len({digest for _, digest in runs.digests(deployed)}) == 3
    logs = {path.stem: path.read_text(errors="replace") for path in (deployed / "logs").iterdir()}
    assert set(logs) == {"run", "superlink", "superexec", "supernode-0", "supernode-1", "supernode-2"}
    assert logs["supernode-1"].count("Starting Flower SuperNode") >= 2, "it was started again"
    assert logs["supernode-0"].count("Starting Flower SuperNode") == 1


@pytest.fixture(scope="module")
def undisturbed(policy, flower_messages, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole") / "run"
    runs.play(folder, policy)
    return folder


class Hosts:
    """The documented commands, each a process that ends with the test."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder, self._stack = folder, stack
        self.port, *self.site_ports = launch.free_ports(3)
        self.certificates = folder / "certificates"
        self.link = ("--superlink", f"127.0.0.1:{self.port}")
        self.there = (*self.link, "--root-certificates", self.certificates / "ca.crt")

    def start(self, name: str, *arguments: object) -> None:
        """Become a host."""
        home = self.folder / name
        home.mkdir()
        env = {"PYTHONPATH": str(ROOT), "HOME": str(home), "FLWR_HOME": str(home / "flwr"), "PATH": "/usr/bin:/bin"}
        words = [sys.executable, "-m", "flwr_agent", *map(str, arguments)]
        self._stack.enter_context(launch.supervised(words, home, env, self.folder / f"{name}.log"))

    def ask(self, *arguments: object) -> str:
        """A command that ends."""
        return done(command(self.folder, *arguments))


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    """A SuperLink, its SuperExec and two sites, set up as docs/deployment.md says."""
    with ExitStack() as stack:
        made = Hosts(tmp_path_factory.mktemp("hosts"), stack)
        made.ask("certificates", made.certificates, "superlink.example.org")
        made.start("superlink", "superlink", made.certificates, "--host", "127.0.0.1", "--port", made.port)
        made.start("superexec", "superexec", made.certificates, *made.link)
        doctor = ("doctor", "--preset", "tinyguess", *made.there)
        runs.wait_for(lambda: runs.finish(command(made.folder, *doctor))[0] == 0)
        for client, port in enumerate(made.site_ports):
            key = made.folder / f"key-{client}"
            made.ask("key", key)
            made.ask("register", f"{key}.pub", *made.there)
            made.start(f"site-{client}", "site", *made.there, "--key", key, "--partition-id", client, "--port", port)
        yield made


@pytest.mark.weekly
def test_a_run_at_a_superlink_is_stopped_and_resumed_to_the_same_weights(hosts: Hosts, policy, undisturbed, tmp_path):
    deployed = tmp_path / "deployed"
    assert "flwr-agent status" in done(runs.start(deployed, policy, *map(str, hosts.there), "--detach"))
    runs.wait_for(lambda: runs.lines(deployed, "client"))
    assert "flwr-agent resume" in hosts.ask("stop", deployed)
    runs.wait_for(lambda: json.loads(hosts.ask("status", deployed, "--json"))["state"] == "finished:stopped")
    assert f"run folder: {deployed}" in hosts.ask("resume", deployed)
    assert runs.lines(deployed, "resume")
    assert runs.digests(deployed) == runs.digests(undisturbed)


@pytest.mark.weekly
def test_a_run_of_this_machine_is_stopped_and_resumed_by_its_folder(policy, tmp_path):
    folder = tmp_path / "run"
    process = runs.start(folder, policy, "federation.rounds=6")
    runs.wait_for(lambda: runs.lines(folder, "client"))
    done(command(tmp_path, "stop", folder))
    assert process.wait(timeout=runs.TIMEOUT_S) == 128 + signal.SIGTERM
    assert f"go on with: flwr-agent resume {folder}" in done(command(tmp_path, "status", folder))
    done(command(tmp_path, "resume", folder))
    assert "finished:completed" in done(command(tmp_path, "status", folder))
