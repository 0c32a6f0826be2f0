"""Connections that break and servers that are killed: every episode ends, no slot is lost, no step is applied twice."""

import asyncio
import random
import signal
import subprocess
import sys
import time
from contextlib import ExitStack

import pytest
import requests

from envs import registry
from envs.remote.leases import Leases
from flwr_agent.errors import EnvError
from flwr_agent.paths import ROOT
from flwr_agent.rl.launch import free_ports
from tests.envs.remote.hosting import TOKEN, Relay, Tally, Tallying, hosted, in_thread


async def clients(adapter, count: int, *, at_once: int, seed: int) -> list[str]:
    """Play `count` episodes of random lengths; how each ended."""
    gate, tasks = asyncio.Semaphore(at_once), adapter.tasks("train")

    async def client(number: int) -> str:
        draw = random.Random(f"{seed} {number}")
        async with gate:
            env = adapter.make()
            try:
                await env.reset(tasks[number % len(tasks)], seed=0)
                for count in range(1, draw.randrange(2, 8)):
                    step = await env.step("25")
                    if adapter.name == "tallying":
                        assert step.text == f"25 {count}"
            except EnvError as error:
                return str(error)
            finally:
                if draw.random() < 0.9:
                    await env.close()
                elif env._connection:
                    env._connection.transport.abort()
            return "played"

    return await asyncio.wait_for(asyncio.gather(*(client(number) for number in range(count))), 500)


def until(condition, timeout_s: float) -> bool:
    end = time.monotonic() + timeout_s
    while not condition() and time.monotonic() < end:
        time.sleep(0.1)
    return condition()


def test_connections_that_break_at_random_cost_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr("envs.remote.server.GRACE_S", 3.0)
    Tally.live, Tally.misused = 0, []
    leases = Leases(slots=16)
    with ExitStack() as stack:
        host = stack.enter_context(hosted(lambda *_: Tallying(), tmp_path, leases=leases))
        relay = Relay(host.port, cut=0.0, seed=5)
        port = stack.enter_context(in_thread(lambda: relay))
        adapter = registry.create("remote", host.settings | {"url": f"http://127.0.0.1:{port}"})
        adapter.tasks("train")
        relay.cut = 0.03
        ends = asyncio.run(clients(adapter, 150, at_once=40, seed=1))
        assert set(ends) == {"played"}
        assert relay.num_cuts > 50
        assert until(lambda: leases.num_taken == 0, 10.0)
        assert until(lambda: Tally.live == 0, 5.0)
    assert Tally.misused == []


class Process:
    """`python -m flwr_agent serve` on a port of its own, that can be killed and started again."""

    def __init__(self, port: int, folder):
        (folder / "token").write_text(TOKEN)
        self.url, self.folder, self.port = f"http://127.0.0.1:{port}", folder, port
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [sys.executable, "-m", "flwr_agent", "serve", "--env", "tinyguess", "--port", str(self.port)]
        self.process = subprocess.Popen(
            [*command, "--token-file", str(self.folder / "token"), "--slots", "40"],
            cwd=ROOT,
            env={"HOME": str(self.folder), "PYTHONPATH": str(ROOT)},
            stdout=subprocess.DEVNULL,
        )

    def health(self) -> dict:
        try:
            return requests.get(f"{self.url}/health", headers={"Authorization": f"Bearer {TOKEN}"}, timeout=5).json()
        except requests.RequestException:
            return {}

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


@pytest.mark.slow
def test_two_thousand_clients_outlive_servers_that_are_killed(tmp_path):
    servers = [Process(port, tmp_path) for port in free_ports(3)]
    try:
        for server in servers:
            server.start()
        assert until(lambda: all(server.health() for server in servers), 120)
        urls = ",".join(server.url for server in servers)
        adapter = registry.create("remote", {"url": urls, "token_file": str(tmp_path / "token"), "timeout_s": 60.0})
        adapter.tasks("train")

        async def kill_and_restart() -> int:
            for number in range(1_000):
                await asyncio.sleep(2.0)
                server = servers[number % 3]
                await asyncio.to_thread(server.kill)
                server.start()
                await asyncio.to_thread(until, lambda server=server: bool(server.health()), 60)
            return 0

        async def scenario() -> list[str]:
            killer = asyncio.create_task(kill_and_restart())
            ends = await clients(adapter, 2_000, at_once=64, seed=2)
            killer.cancel()
            return ends

        ends = asyncio.run(scenario())
        played = ends.count("played")
        assert played > 1_200
        others = {end for end in ends if end != "played"}
        assert others, "some episodes were in play on a server that was killed"
        assert until(lambda: all(server.health().get("taken") == 0 for server in servers), 90)
    finally:
        for server in servers:
            if server.process:
                server.kill()
