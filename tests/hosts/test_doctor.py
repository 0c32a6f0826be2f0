"""Each finding against a host that is fit and one that is not; machines are made with folders, sockets and processes."""

import shutil
import socket
import ssl
import stat
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from flwr_agent.config import RunConfig, resolve
from flwr_agent.hosts import certificates, doctor, network
from flwr_agent.hosts.certificates import Authority, make_authority, make_key
from flwr_agent.hosts.doctor import Host, examine
from flwr_agent.hosts.finding import Finding, Verdict
from flwr_agent.paths import code_hash
from flwr_agent.rl import launch

TINY = resolve({"env.name": "tinyguess"})


def with_vllm(python: str = "same") -> RunConfig:
    rollout, worker = replace(TINY.rollout, engine="vllm"), replace(TINY.worker, python=python)
    return replace(TINY, rollout=rollout, worker=worker)


class Healthy(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/health" else 404)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nothing on the terminal."""


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return make_authority(tmp_path_factory.mktemp("tls"), ["127.0.0.1"])


@pytest.fixture(scope="module")
def superlink(authority: Authority) -> Iterator[str]:
    """Address of a server that answers as a SuperLink does to the question whether it is well."""
    server = HTTPServer(("127.0.0.1", launch.free_ports(1)[0]), Healthy)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.certificate, authority.key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield "{}:{}".format(*server.server_address)
    server.shutdown()
    server.server_close()


def test_a_fit_host_has_no_failing_finding(superlink: str, authority: Authority, tmp_path: Path):
    make_key(tmp_path / "site")
    host = Host(
        config=TINY,
        model_bytes=1000,
        superlink=superlink,
        root_certificates=authority.root,
        key=tmp_path / "site",
        ports=launch.free_ports(2),
        code=code_hash()[:12],
    )
    findings = list(examine(host))
    assert [str(finding) for finding in findings if finding.verdict is Verdict.FAIL] == []
    names = [finding.name.split()[0] for finding in findings]
    assert {"versions", "code", "gpu", "vllm", "model", "data", "sandbox", "port", "superlink", "clock", "key"} < {
        *names
    }


def test_a_finding_is_one_line_with_the_way_out():
    finding = Finding("port 80", Verdict.FAIL, "is taken", "choose another")
    assert str(finding) == "fail  port 80: is taken; choose another"
    assert finding.to_dict() == {"name": "port 80", "verdict": "fail", "found": "is taken", "fix": "choose another"}


def test_a_port_must_be_free_and_outside_the_range_of_outgoing_connections(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setattr(network, "EPHEMERAL", tmp_path / "range")
    monkeypatch.setattr(network, "RESERVED", tmp_path / "reserved")
    (tmp_path / "range").write_text("32768\t60999\n")
    free, taken = launch.free_ports(2)
    assert network.port(free).verdict is Verdict.OK
    assert "in the range of outgoing connections, 32768 to 60999" in network.port(40_000).found
    with socket.create_server(("127.0.0.1", taken)):
        assert network.port(taken).found == "is taken"
    for reserved in ("40000\n", "8080,39990-40010\n"):
        (tmp_path / "reserved").write_text(reserved)
        assert "outgoing" not in network.port(40_000).found
    assert "outgoing" in network.port(40_011).found


def test_other_code_is_named():
    assert doctor.code(code_hash()[:8]).verdict is Verdict.OK
    assert "abc there" in doctor.code("abc").found


def test_vllm_is_looked_for_in_the_worker_s_interpreter(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    python = tmp_path / "python"
    config = with_vllm(str(python))
    assert doctor.inference(TINY).found == "not needed (rollout.engine=transformers)"
    assert "No such file" in doctor.inference(config).found
    for script, verdict in (("exit 1", Verdict.FAIL), ("echo 0.31.0", Verdict.OK)):
        python.write_text(f"#!/bin/sh\n{script}\n")
        python.chmod(0o755)
        assert doctor.inference(config).verdict is verdict


def test_gpus_are_counted_and_a_busy_one_is_a_warning(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    tool = tmp_path / "nvidia-smi"
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    assert doctor.gpu(Host(config=TINY, is_server=True)).verdict is Verdict.OK
    for free, verdict in (("140000", Verdict.OK), ("1000", Verdict.WARN)):
        tool.write_text(f"#!/bin/sh\necho 'NVIDIA H200, 570.1, {free}, 143771'\n")
        tool.chmod(0o755)
        finding = doctor.gpu(Host(config=TINY))
        assert finding.verdict is verdict
        assert finding.found.startswith("1 of 1 visible, NVIDIA H200, driver 570.1")


def test_without_a_gpu_vllm_is_impossible_and_training_is_slow(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert doctor.gpu(Host(config=TINY)).verdict is Verdict.WARN
    assert doctor.gpu(Host(config=with_vllm())).verdict is Verdict.FAIL


def test_a_model_or_world_that_a_run_would_refuse_is_a_finding_with_the_same_words():
    assert "no such folder" in doctor.model(resolve({"model.path": "/no/model"})).found
    assert "evaluation.tasks" in doctor.data(resolve({"env.name": "tinyguess", "evaluation.tasks": 10**6})).found


def test_a_model_needs_room_for_its_checkpoints_and_its_way_to_the_worker(tmp_path: Path):
    config = resolve({"output_dir": str(tmp_path / "runs" / "one")})
    verdicts = {finding.name: finding.verdict for finding in doctor.disk(Host(config=config, is_server=True))}
    assert verdicts["disk"] is Verdict.OK
    full = list(doctor.disk(Host(config=config, is_server=True, model_bytes=2**60)))
    assert {finding.name for finding in full if finding.verdict is Verdict.FAIL} >= {"disk"}
    assert "GiB needed" in str(full[0]) or " needed" in str(full[0])


def test_a_superlink_that_is_away_or_not_trusted_is_told_apart(superlink: str, tmp_path: Path):
    other = make_authority(tmp_path / "other", ["127.0.0.1"])
    (away,) = network.superlink(f"127.0.0.1:{launch.free_ports(1)[0]}", None)
    (foreign,) = network.superlink(superlink, other.root)
    assert "does not answer" in away.found
    assert f"is not trusted: {other.root} is not of the authority that signed its certificate" in foreign.found
    assert foreign.fix == "give --root-certificates the ca.crt of this SuperLink"
    assert foreign.verdict is away.verdict is Verdict.FAIL


def test_what_is_wrong_with_the_trust_in_a_superlink_is_said(superlink: str, authority: Authority):
    (unknown,) = network.superlink(superlink, None)
    assert unknown.found.endswith("is not trusted: no authority of this system has signed its certificate")
    (elsewhere,) = network.superlink(superlink.replace("127.0.0.1", "localhost"), authority.root)
    assert elsewhere.found.endswith("is not trusted: its certificate is for other names")


def test_a_server_without_tls_is_told_apart(authority: Authority):
    with HTTPServer(("127.0.0.1", launch.free_ports(1)[0]), Healthy) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        (plain,) = network.superlink("{}:{}".format(*server.server_address), authority.root)
        server.shutdown()
    assert "speaks no TLS that fits" in plain.found


def test_a_root_certificate_that_is_none_is_named_before_anything_is_asked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setattr(network.requests, "Session", lambda: pytest.fail("asked"))
    (tmp_path / "text").write_text("no certificate")
    (tmp_path / "half.crt").write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    for name in ("text", "half.crt"):
        (finding,) = network.superlink("127.0.0.1:1", tmp_path / name)
        assert finding.found == f"{tmp_path / name} holds no certificate in PEM"
        assert "copy ca.crt anew" in finding.fix
    (absent,) = network.superlink("127.0.0.1:1", tmp_path / "absent")
    assert absent.found == f"{tmp_path / 'absent'} cannot be read (No such file or directory)"
    monkeypatch.setattr(certificates, "DAYS", 0)
    old = make_authority(tmp_path / "old", ["127.0.0.1"])
    (expired,) = network.superlink("127.0.0.1:1", old.root)
    assert f"{old.root} has expired on " in expired.found
    assert "make new certificates" in expired.fix


@pytest.mark.parametrize(
    ("ahead_s", "verdict"),
    [
        (0.4, Verdict.OK),
        (-1.5, Verdict.OK),
        (4, Verdict.WARN),
        (-200, Verdict.WARN),
        (8, Verdict.FAIL),
        (-400, Verdict.FAIL),
    ],
)
def test_a_clock_may_be_behind_more_than_ahead(ahead_s: float, verdict: Verdict):
    assert network.clock(ahead_s).verdict is verdict


def test_a_key_must_be_one_and_be_private(tmp_path: Path):
    make_key(tmp_path / "site")
    assert network.key(tmp_path / "site").verdict is Verdict.OK
    (tmp_path / "site").chmod(0o644)
    assert network.key(tmp_path / "site").fix.startswith("chmod 600")
    assert network.key(tmp_path / "absent").verdict is Verdict.FAIL
    (tmp_path / "text").write_text("no key")
    assert network.key(tmp_path / "text").verdict is Verdict.FAIL
    assert stat.S_IMODE((tmp_path / "site").stat().st_mode) == 0o644, "a look changes nothing"


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="ssh-keygen makes the key")
def test_a_key_with_a_password_is_told_apart(tmp_path: Path):
    made = ["ssh-keygen", "-q", "-t", "ecdsa", "-b", "384", "-N", "a password", "-f", str(tmp_path / "site")]
    subprocess.run(made, check=True)
    finding = network.key(tmp_path / "site")
    assert finding.verdict is Verdict.FAIL
    assert "protected by a password" in finding.found, finding
