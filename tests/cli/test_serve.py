"""Nothing listens before everything is checked, and what was started is stopped."""

import signal
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from envs import registry
from flwr_agent.paths import ROOT
from flwr_agent.rl.launch import free_ports
from tests.envs.remote.hosting import TOKEN, builder, hosted


def start(*arguments: str, home: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "flwr_agent", "serve", *arguments],
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT), "HOME": str(home)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def is_listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--env", "tinygues"], "env.name='tinygues': no such environment"),
        (["--env", "tinyguess", "secret=1"], "env.secret=1: environment 'tinyguess' does not use this key"),
        (["--env", "webshop", "data_path=/no/such/folder"], "env.data_path="),
        (["--env", "tinyguess", "verifier=no_such:f"], "env.verifier='no_such:f'"),
        (
            ["--env", "tinyguess", "--host", "192.0.2.1"],
            "--host='192.0.2.1': other machines can reach it; give --token-file",
        ),
        (
            ["--env", "tinyguess", "--token-file", "/no/such/file"],
            "--token-file='/no/such/file': cannot be read (No such file or directory); give --token-file a file with",
        ),
        (["--env", "webshop", "search_return_n=0"], "env.search_return_n=0: must be at least 1"),
    ],
)
def test_a_wrong_setting_starts_nothing(tmp_path, arguments, message):
    [port] = free_ports(1)
    process = start(*arguments, "--port", str(port), home=tmp_path)
    out, err = process.communicate(timeout=120)
    assert (process.returncode, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1
    assert not is_listening(port)
    assert list(tmp_path.iterdir()) == []


def test_a_short_token_is_refused(tmp_path):
    (tmp_path / "token").write_text("password\n")
    process = start("--env", "tinyguess", "--token-file", str(tmp_path / "token"), home=tmp_path)
    assert "holds fewer than 16 characters" in process.communicate(timeout=120)[1]
    assert process.returncode == 2


def test_an_address_that_is_not_this_machine_s_is_refused(tmp_path):
    (tmp_path / "token").write_text(TOKEN)
    process = start("--env", "tinyguess", "--host", "192.0.2.1", "--token-file", str(tmp_path / "token"), home=tmp_path)
    assert "error: host='192.0.2.1': is no address of this machine" in process.communicate(timeout=120)[1]
    assert process.returncode == 2


def test_a_port_that_is_taken_is_refused_and_its_owner_s_token_is_left_alone(tmp_path):
    with hosted(builder("tinyguess"), tmp_path) as host:
        token = tmp_path / ".cache" / "flwr_agent" / "tokens" / str(host.port)
        token.parent.mkdir(parents=True)
        token.write_text(TOKEN)
        process = start("--env", "tinyguess", "--port", str(host.port), home=tmp_path)
        assert f"port={host.port}: 127.0.0.1:{host.port} cannot be bound" in process.communicate(timeout=120)[1]
    assert process.returncode == 2
    assert token.read_text() == TOKEN


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_server_its_children_and_its_token(tmp_path, monkeypatch, number):
    process = start("--env", "tinyguess", home=tmp_path)
    try:
        said = process.stdout.readline()
        url = said.split()[3]
        monkeypatch.setenv("HOME", str(tmp_path))
        adapter = registry.create("remote", {"url": url, "digest": said.split()[5].rstrip(")")})
        assert len(adapter.tasks("train")) == 4_000
        children = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(number)
        assert process.wait(timeout=30) == 0
    finally:
        process.kill()
        process.communicate()
    assert not is_listening(int(url.rpartition(":")[2]))
    assert not any(child.is_running() for child in children)
    assert list((tmp_path / ".cache" / "flwr_agent" / "tokens").iterdir()) == []
