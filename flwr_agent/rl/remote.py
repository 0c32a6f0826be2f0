"""The worker as a process of its own: it keeps model and optimizer while ClientApps come and go.

Frames are JSON over a Unix socket, tensors are safetensors files in shared memory, removed by who reads them. The
socket's name is a digest of the node and one of run, configuration and code, so a worker never serves another
configuration or code; a node has one worker, and a request that it may not serve replaces it.
Run by `python -m flwr_agent.rl.remote SOCKET IDLE_TIMEOUT_S OWNER_PID`.
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
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Client, Connection
from pathlib import Path
from typing import Any

import psutil
from filelock import FileLock, Timeout

from flwr_agent.arrays import load, save
from flwr_agent.config import RunConfig, resolve
from flwr_agent.errors import AgentError, WorkerError
from flwr_agent.paths import code_hash
from flwr_agent.requests import EvaluateReply, EvaluateRequest, TrainReply, TrainRequest
from flwr_agent.rl import shared, spawn
from flwr_agent.rl.heap import trim

KINDS = {cls.__name__: cls for cls in (TrainRequest, EvaluateRequest, TrainReply, EvaluateReply)}
POLL_S = 1.0
"""Seconds between looks at a silent worker, whose caller's other threads (heartbeats) run in between, and of an idle
worker at its owner."""
DISMISS_S = 600.0
"""Seconds that the end of a run waits for what its worker is at."""
ADDRESS_BYTES = 103
"""Longest address of a Unix socket; Linux has 107."""


def ask(request: TrainRequest | EvaluateRequest, node: str, *, owner: int = 0) -> TrainReply | EvaluateReply:
    """Let the node's worker answer; it is started if none is there, in place of one of another run or code.

    Args:
        request: what to answer.
        node: whose worker.
        owner: id of the process without which the worker has no purpose; 0 if there is none.

    Raises:
        ConfigError: `worker.python` cannot be started, or lacks a package.
        WorkerError: it died, stood still, served others for too long, or answered with an error; its log is named.
    """
    address, config = to_address(request, node), request.config
    with _turn(address, config), _connected(address, config, owner) as connection, shared.folder() as folder:
        try:
            connection.send_bytes(_encode(request, folder))
            _wait(connection, address, limit_s=config.federation.round_timeout_s)
            answer = json.loads(connection.recv_bytes())
        except (EOFError, ConnectionError) as error:
            raise WorkerError(f"the worker died while it served round {request.round}; see {address}.log") from error
        if "error" in answer:
            raise WorkerError(f"{answer['error']} (worker log: {address}.log)")
        return _decode(answer)


def dismiss(node: str) -> None:
    """End the node's worker, if it has one; one that is at work for longer than `DISMISS_S` ends by itself, idle."""
    stem = _folder() / _digest(node)
    with suppress(Timeout), _claim(stem, timeout_s=DISMISS_S):
        _end_all(stem)


def to_address(request: TrainRequest | EvaluateRequest, node: str) -> str:
    """Socket of the worker that may answer this request.

    Raises:
        WorkerError: the temporary folder has too long a name, or not ours in it what should be our folder.
    """
    parts = [request.experiment, request.config.identity(), code_hash()]
    address = str(_folder() / f"{_digest(node)}-{_digest(parts)}.sock")
    if (length := len(os.fsencode(address))) > ADDRESS_BYTES:
        fix = f"{length - ADDRESS_BYTES} bytes too long for the address of a worker's socket; set TMPDIR to a shorter path"
        raise WorkerError(f"TMPDIR={tempfile.gettempdir()}: {fix}, such as /tmp")
    return address


def main(address: str, idle_timeout_s: float, owner: int = 0) -> None:
    """Serve one request at a time until none has come for `idle_timeout_s` seconds or the owner is gone."""
    from flwr_agent.rl.worker import serve

    with socket.socket(socket.AF_UNIX) as listener:
        Path(address).unlink(missing_ok=True)
        listener.bind(address)
        listener.listen()
        listener.settimeout(min(idle_timeout_s, POLL_S))
        last = time.monotonic()
        while True:
            try:
                peer, _ = listener.accept()
            except TimeoutError:
                is_orphan = bool(owner) and not psutil.pid_exists(owner)
                if is_orphan or time.monotonic() - last >= idle_timeout_s:
                    # A caller that holds the claim is about to connect; the socket goes only when nobody does.
                    with suppress(Timeout), _claim(_stem(address), timeout_s=0.0):
                        Path(address).unlink(missing_ok=True)
                        return
                continue
            peer.settimeout(None)
            with (
                Connection(peer.detach()) as connection,
                suppress(EOFError, ConnectionError),
                shared.folder() as folder,
            ):
                connection.send_bytes(_answer(serve, connection.recv_bytes(), folder))
                connection.recv_bytes()
            trim()  # weights come and go in hundreds of blocks, between which others stay
            last = time.monotonic()


def _folder() -> Path:
    folder = Path(tempfile.gettempdir()) / f"flwr-agent-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise WorkerError(f"{folder} cannot be the folder of workers ({error.strerror}); remove it") from error
    if folder.stat().st_uid != os.getuid():
        raise WorkerError(f"{folder} belongs to another user; remove it")
    return folder


def _digest(parts: object) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def _stem(address: str) -> Path:
    """What the names of a node's files begin with."""
    file = Path(address)
    return file.with_name(file.name.partition("-")[0])


def _claim(stem: Path, *, timeout_s: float) -> FileLock:
    """The right to start, ask or end a node's worker; of one process at a time."""
    return FileLock(f"{stem}.lock", timeout=timeout_s)


@contextmanager
def _turn(address: str, config: RunConfig) -> Iterator[None]:
    """The claim for one request, which is waited for while its reply can still count, as a late one too."""
    limit_s = config.federation.round_timeout_s * (1 + config.strategy.max_staleness)
    claim = _claim(_stem(address), timeout_s=limit_s)
    try:
        claim.acquire()
    except Timeout as error:
        fix = f"the node's worker has served other requests for {limit_s:g} s; raise federation.round_timeout_s"
        raise WorkerError(f"{fix}, or end them (worker log: {address}.log)") from error
    try:
        yield
    finally:
        claim.release()


def _wait(connection: Connection, address: str, *, limit_s: float) -> None:
    """Wait for the worker's answer, for as long as it works.

    How long training takes cannot be known here, but one that works spends processor time: it, its children or both.

    Raises:
        WorkerError: it has spent none for `limit_s` seconds, and was ended.
    """
    spent_s, since = spawn.spent(address), time.monotonic()
    while not connection.poll(min(POLL_S, limit_s)):
        if time.monotonic() - since < limit_s:
            continue  # a look reads about every process of the machine, so it is taken rarely
        before_s, spent_s, since = spent_s, spawn.spent(address), time.monotonic()
        if spent_s == before_s:
            spawn.end_worker(address)
            reason = f"the worker stood still (stopped or deadlocked) for federation.round_timeout_s={limit_s:g}"
            raise WorkerError(f"{reason} and was ended; the next request starts another; see {address}.log")


def _end_all(stem: Path) -> None:
    for address in stem.parent.glob(f"{stem.name}-*.sock"):
        spawn.end_worker(str(address))


@contextmanager
def _connected(address: str, config: RunConfig, owner: int) -> Iterator[Connection]:
    """A connection to the worker at `address`, started first, in place of the node's last one, if nobody listens."""
    try:
        connection = Client(address, "AF_UNIX")
    except (FileNotFoundError, ConnectionRefusedError):
        _end_all(_stem(address))
        worker = config.worker
        spawn.start_worker(
            address,
            python=worker.python,
            needs=spawn.needed(config),
            idle_timeout_s=worker.idle_timeout_s,
            owner=owner,
        )
        connection = Client(address, "AF_UNIX")
    with connection:
        yield connection


def _answer(serve: Any, frame: bytes, folder: Path) -> bytes:
    try:
        return _encode(serve(_decode(json.loads(frame))), folder)
    except AgentError as error:
        reason = str(error)
    # A process boundary: what is not answered here would end the warm worker and keep its reason from the caller.
    except Exception as error:  # noqa: BLE001
        traceback.print_exc()
        reason = " ".join(f"{type(error).__name__}: {error}".split())
    return json.dumps({"error": reason}).encode()


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
        fields |= {name: tuple(fields[name]) for name in ("tasks", "types", "episodes")}
    return KINDS[frame["kind"]](**fields)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    main(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]))
