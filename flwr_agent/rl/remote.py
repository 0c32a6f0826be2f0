"""The worker as a process of its own: it keeps model and optimizer while ClientApps come and go.

Frames are JSON over a Unix socket, tensors are safetensors files in shared memory, removed by who reads them. The
socket's name is a digest of run, configuration, code and node, so a worker never serves another configuration or code.
Run by `python -m flwr_agent.rl.remote SOCKET IDLE_TIMEOUT_S`.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
import os
import socket
import sys
import tempfile
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Client, Connection
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from flwr_agent.arrays import load, save
from flwr_agent.config import RunConfig, resolve
from flwr_agent.errors import AgentError, WorkerError
from flwr_agent.paths import code_hash
from flwr_agent.requests import EvaluateReply, EvaluateRequest, TrainReply, TrainRequest

KINDS = {cls.__name__: cls for cls in (TrainRequest, EvaluateRequest, TrainReply, EvaluateReply)}
POLL_S = 1.0
"""Seconds between looks at a silent worker; in between the caller's other threads (heartbeats) run."""


def ask(request: TrainRequest | EvaluateRequest, node: str) -> TrainReply | EvaluateReply:
    """Let the node's worker answer; it is started if none is there.

    Raises:
        ConfigError: `worker.python` cannot be started.
        WorkerError: it died, or answered with an error; its log is named.
    """
    address = to_address(request, node)
    with _claim(address), _connected(address, request.config) as connection, _shared() as folder:
        try:
            connection.send_bytes(_encode(request, folder))
            while not connection.poll(POLL_S):
                pass
            answer = json.loads(connection.recv_bytes())
        except (EOFError, ConnectionError) as error:
            raise WorkerError(f"the worker died while it served round {request.round}; see {address}.log") from error
        if "error" in answer:
            raise WorkerError(f"{answer['error']} (worker log: {address}.log)")
        return _decode(answer)


def to_address(request: TrainRequest | EvaluateRequest, node: str) -> str:
    """Socket of the worker that may answer this request; short, because the system allows about 100 bytes."""
    parts = json.dumps([request.experiment, request.config.identity(), code_hash(), node])
    folder = Path(tempfile.gettempdir()) / f"flwr-agent-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.stat().st_uid != os.getuid():
        raise WorkerError(f"{folder} belongs to another user; remove it")
    return str(folder / f"{hashlib.sha256(parts.encode()).hexdigest()[:16]}.sock")


def main(address: str, idle_timeout_s: float) -> None:
    """Serve one request at a time until none has come for `idle_timeout_s` seconds."""
    from flwr_agent.rl.worker import serve

    with socket.socket(socket.AF_UNIX) as listener:
        Path(address).unlink(missing_ok=True)
        listener.bind(address)
        listener.listen()
        listener.settimeout(idle_timeout_s)
        while True:
            try:
                peer, _ = listener.accept()
            except TimeoutError:
                # A caller that holds the claim is about to connect; the socket goes only when nobody does.
                with suppress(Timeout), _claim(address, timeout_s=0.0):
                    Path(address).unlink(missing_ok=True)
                    return
                continue
            peer.settimeout(None)
            with Connection(peer.detach()) as connection, suppress(EOFError, ConnectionError), _shared() as folder:
                connection.send_bytes(_answer(serve, connection.recv_bytes(), folder))
                connection.recv_bytes()


def _claim(address: str, *, timeout_s: float = -1.0) -> FileLock:
    """The right to start, ask or end the worker at `address`; of one process at a time."""
    return FileLock(f"{address}.lock", timeout=timeout_s)


def _answer(serve: Any, frame: bytes, folder: Path) -> bytes:
    try:
        return _encode(serve(_decode(json.loads(frame))), folder)
    except AgentError as error:
        reason = str(error)
    except (RuntimeError, ValueError, OSError) as error:
        traceback.print_exc()
        reason = " ".join(f"{type(error).__name__}: {error}".split())
    return json.dumps({"error": reason}).encode()


@contextmanager
def _connected(address: str, config: RunConfig) -> Iterator[Connection]:
    """A connection to the worker at `address`, started first if nobody listens."""
    from flwr_agent.rl import launch

    try:
        connection = Client(address, "AF_UNIX")
    except (FileNotFoundError, ConnectionRefusedError):
        launch.start_worker(address, python=config.worker.python, idle_timeout_s=config.worker.idle_timeout_s)
        connection = Client(address, "AF_UNIX")
    with connection:
        yield connection


@contextmanager
def _shared() -> Iterator[Path]:
    """A folder in shared memory where there is one, gone afterwards."""
    memory = Path("/dev/shm")  # noqa: S108
    with tempfile.TemporaryDirectory(prefix="flwr-agent-", dir=memory if memory.is_dir() else None) as folder:
        yield Path(folder)


def _encode(message: Any, folder: Path) -> bytes:
    fields = {f.name: getattr(message, f.name) for f in dataclasses.fields(message)}
    if "arrays" in fields:
        save(folder / "arrays.safetensors", fields["arrays"])
        fields["arrays"] = str(folder / "arrays.safetensors")
    if "config" in fields:
        fields["config"] = fields["config"].flat()
    return json.dumps({"kind": type(message).__name__, "fields": fields}).encode()


def _decode(frame: dict[str, Any]) -> Any:
    fields = dict(frame["fields"])
    if "arrays" in fields:
        file = Path(fields["arrays"])
        fields["arrays"] = load(file)
        file.unlink()
    if "config" in fields:
        fields["config"] = resolve(fields["config"])
    if "outcomes" in fields:
        fields["outcomes"] = {name: tuple(values) for name, values in fields["outcomes"].items()}
        fields |= {name: tuple(fields[name]) for name in ("tasks", "types")}
    return KINDS[frame["kind"]](**fields)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    main(sys.argv[1], float(sys.argv[2]))
