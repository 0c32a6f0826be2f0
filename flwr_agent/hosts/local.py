"""Flower on this machine, for one run: a SuperLink with the simulation, or with SuperNodes as on hosts of their own.

It has its own home, its own loopback ports and an empty working directory (Ray puts that before the app on the path of
the simulated clients), and installs no packages at run time. With SuperNodes it is what docs/deployment.md sets up on
real hosts: TLS, keys of the SuperNodes, a SuperExec beside the SuperLink, a database, and processes that are started
again when they die; or, with `in_memory`, a SuperLink that has no database and is not started again.
"""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import requests
from filelock import FileLock, Timeout

from flwr_agent.hosts import certificates, commands
from flwr_agent.hosts.service import Service
from flwr_agent.hosts.superlink import LaunchError, SuperLink, connect
from flwr_agent.rl import launch

HOST = "127.0.0.1"
NODE_RESTART_S = 15.0
"""Seconds before a dead SuperNode is started again; it is refused until its session has expired, within a minute."""
HOMES = "fa-"
"""What the names of Flower's homes in the temporary folder begin with; short, for Ray's sockets."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Federation:
    """Where the clients of a run live.

    Example:
        >>> Federation(num_nodes=2, threads=1).simulation()
        'num-supernodes=2 client-resources-num-cpus=1 client-resources-num-gpus=0.0 init-args-num-cpus=2'
    """

    num_nodes: int
    threads: int
    """CPU threads of one client."""
    gpus: float = 0.0
    """GPUs of one client; simulated clients beyond what the machine has take turns."""
    is_deployment: bool = False
    """SuperNodes with processes of their own on loopback, one per client id, instead of the simulation."""
    in_memory: bool = False
    """Their SuperLink keeps its state in memory, for models too large for Flower's database."""
    modules: tuple[Path, ...] = ()
    """Folders of the user's own modules, which ServerApp and clients import too."""

    def simulation(self) -> str:
        """Flower's federation settings: as many clients side by side as there are cores, and no process without one."""
        cpus = max(self.threads, min(os.cpu_count() or 1, self.num_nodes * self.threads))
        return (
            f"num-supernodes={self.num_nodes} client-resources-num-cpus={self.threads} "
            f"client-resources-num-gpus={self.gpus} init-args-num-cpus={cpus}"
        )

    def options(self) -> tuple[str, ...]:
        """What `flwr run` is told of it."""
        return () if self.is_deployment else ("--federation-config", self.simulation())


@dataclass(frozen=True, kw_only=True, slots=True)
class Flower:
    """A running SuperLink of our own and what runs beside it."""

    link: SuperLink
    services: Mapping[str, Service]
    """`superlink`, and in deployment `superexec` and `supernode-CLIENT_ID`."""

    def tend(self) -> None:
        """Start again what has died, in deployment; without a database a run lives and dies with its SuperLink.

        Raises:
            LaunchError: a SuperLink without a database is gone, or a process dies whenever it is started.
        """
        for service in self.services.values():
            service.tend()


@contextmanager
def flower(federation: Federation, logs: Path) -> Iterator[Flower]:
    """A SuperLink of our own, with its SuperNodes in deployment; all of it ends with the block.

    Args:
        federation: what to start.
        logs: folder that gets the log of each process, and keeps it.

    Raises:
        LaunchError: it did not come up.
    """
    sweep_homes()
    with tempfile.TemporaryDirectory(prefix=HOMES, ignore_cleanup_errors=True) as folder, ExitStack() as stack:
        home = Path(folder)
        stack.enter_context(FileLock(home / "owner.lock"))
        (home / "empty").mkdir()
        logs.mkdir(parents=True, exist_ok=True)
        start = _deployment if federation.is_deployment else _simulation
        yield start(
            _Place(home, logs, launch.child_env(home, threads=federation.threads, modules=federation.modules), stack),
            federation,
        )


def sweep_homes() -> None:
    """Remove the homes whose launcher was killed before it could."""
    for lock in Path(tempfile.gettempdir()).glob(f"{HOMES}*/owner.lock"):
        with suppress(Timeout, OSError), FileLock(lock, timeout=0.0):
            shutil.rmtree(lock.parent, ignore_errors=True)


@dataclass(frozen=True, slots=True)
class _Place:
    """Where processes are started, and what ends them."""

    home: Path
    logs: Path
    env: Mapping[str, str]
    stack: ExitStack

    def service(
        self, name: str, command: Sequence[str], env: Mapping[str, str] | None = None, **restarts: Any
    ) -> Service:
        log = self.logs / f"{name}.log"
        return self.stack.enter_context(Service(list(command), self.home / "empty", env or self.env, log, **restarts))


def _simulation(place: _Place, federation: Federation) -> Flower:
    port, runtime_port = launch.free_ports(2)
    command = commands.simulation(HOST, port, runtime_port, commands.installed())
    service = place.service("superlink", command, max_restarts=0)
    _wait_until_up(service, lambda: socket.create_connection((HOST, port), timeout=1.0).close())
    link = connect(place.home, f"{HOST}:{port}", insecure=True, threads=federation.threads)
    return Flower(link=link, services={"superlink": service})


def _deployment(place: _Place, federation: Federation) -> Flower:
    port, *node_ports = launch.free_ports(1 + federation.num_nodes)
    address = f"{HOST}:{port}"
    authority = certificates.make_authority(place.home / "certificates", [HOST])
    database = None if federation.in_memory else place.home / "state.db"
    restarts: dict[str, Any] = {"max_restarts": 0} if federation.in_memory else {}
    command = commands.superlink(authority, HOST, port, database)
    services = {"superlink": place.service("superlink", command, **restarts)}
    _wait_until_up(services["superlink"], lambda: _ask(f"https://{address}/health", authority.root))
    services["superexec"] = place.service("superexec", commands.superexec(authority, address))
    link = connect(place.home, address, root_certificates=authority.root, threads=federation.threads)
    for client_id, node_port in enumerate(node_ports):
        key = place.home / f"node-{client_id}"
        link.register(certificates.make_key(key))
        config = f"partition-id={client_id} num-partitions={federation.num_nodes}"
        command = commands.supernode(address, authority.root, key, node_port, config)
        name = f"supernode-{client_id}"
        env = launch.pinned(place.env, client_id, gpus=federation.gpus)
        services[name] = place.service(name, command, env, restart_s=NODE_RESTART_S)
    return Flower(link=link, services=services)


def _wait_until_up(superlink: Service, probe: Callable[[], object], timeout_s: float = 180.0) -> None:
    """Wait until `probe` raises no OSError any more."""
    end = time.monotonic() + timeout_s
    while time.monotonic() < end and superlink.is_up():
        try:
            probe()
        except OSError:
            time.sleep(0.2)
        else:
            return
    raise LaunchError(f"Flower's SuperLink did not start: {launch.end_of(superlink.log)} (log: {superlink.log})")


def _ask(url: str, root: Path) -> None:
    with requests.Session() as session:
        session.trust_env = False  # no proxy on the way to loopback
        session.get(url, timeout=1, verify=str(root)).raise_for_status()
