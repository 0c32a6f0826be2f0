"""The worker process: the inline answer bit for bit, one process for many messages, an end that is noticed."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, replace
from multiprocessing.connection import Client
from pathlib import Path

import numpy as np
import psutil
import pytest
from fakes import config, model
from filelock import FileLock
from policies import save_policy

from flwr_agent.arrays import digest
from flwr_agent.errors import ConfigError, WorkerError
from flwr_agent.requests import EvaluateReply, EvaluateRequest, TrainReply, TrainRequest
from flwr_agent.rl import remote, spawn, worker

NODE = "partition-0"


@pytest.fixture(scope="module")
def train(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TrainRequest]:
    """A client-round of TinyGuess on a policy of a few thousand weights; its worker ends with this module."""
    folder = tmp_path_factory.mktemp("policy")
    run = config(
        model__path=save_policy(folder),
        env__name="tinyguess",
        federation__epochs_per_round=1,
        trainer__tasks_per_step=2,
        algorithm__group_size=3,
        rollout__max_turns=2,
        rollout__max_new_tokens=3,
        evaluation__tasks=3,
        worker__mode="process",
    )
    first = worker.initial_model(run)
    request = TrainRequest(
        experiment=str(folder), round=1, client_id=0, config=run, arrays=first.arrays, base_digest=first.base_digest
    )
    yield request
    for process in serving(request):
        process.kill()
    for file in Path(remote.to_address(request, NODE)).parent.glob(f"{address_of(request).stem}.*"):
        file.unlink()


@pytest.fixture(scope="module")
def evaluate(train: TrainRequest) -> EvaluateRequest:
    return EvaluateRequest(**{f.name: getattr(train, f.name) for f in fields(EvaluateRequest)})


@pytest.fixture
def socket(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An address that is short enough."""
    return str(tmp_path_factory.mktemp("w") / "w-1.sock")


def address_of(request: TrainRequest) -> Path:
    return Path(remote.to_address(request, NODE))


def serving(request: TrainRequest) -> list[psutil.Process]:
    address = str(address_of(request))
    return [p for p in psutil.process_iter(["cmdline"]) if address in (p.info["cmdline"] or ())]


def bits(reply: TrainReply | EvaluateReply) -> dict[str, object]:
    """All of a reply but its seconds."""
    values = {f.name: getattr(reply, f.name) for f in fields(reply)}
    if "arrays" in values:
        values["arrays"] = digest(values["arrays"])
    return values | {"metrics": {name: x for name, x in reply.metrics.items() if not name.startswith("time/")}}


def wait_for(condition: Callable[[], bool], timeout_s: float = 30.0) -> bool:
    end = time.monotonic() + timeout_s
    while not condition() and time.monotonic() < end:
        time.sleep(0.02)
    return condition()


def test_one_process_answers_message_after_message_as_inline_code_does(train, evaluate):
    inline = [bits(worker.serve(train)), bits(worker.serve(evaluate))]
    assert inline[0]["arrays"] != digest(train.arrays)
    first = [bits(worker.call(train, node=NODE)), bits(worker.call(evaluate, node=NODE))]
    (process,) = serving(train)
    assert first == inline
    with ThreadPoolExecutor(2) as callers:
        at_once = list(callers.map(lambda request: bits(worker.call(request, node=NODE)), [train, evaluate]))
    assert at_once == inline
    assert bits(worker.call(replace(train, round=2), node=NODE)) != inline[0]
    assert serving(train) == [process]


def test_an_error_inside_is_one_line_that_names_the_log_and_ends_nothing(train):
    expected = bits(worker.call(train, node=NODE))
    wrong = replace(train, arrays={name: values[:1] for name, values in train.arrays.items()})
    with pytest.raises(WorkerError, match="weights do not fit the model") as caught:
        worker.call(wrong, node=NODE)
    assert len(str(caught.value).splitlines()) == 1
    assert f"{address_of(train)}.log" in str(caught.value)
    assert bits(worker.call(train, node=NODE)) == expected


@pytest.mark.slow
def test_a_worker_that_is_killed_is_an_error_and_the_next_call_starts_another(train):
    expected = bits(worker.call(train, node=NODE))
    (process,) = serving(train)
    process.send_signal(signal.SIGSTOP)
    with ThreadPoolExecutor(1) as caller:
        waiting = caller.submit(worker.call, train, node=NODE)
        assert wait_for(lambda: is_claimed(train))
        time.sleep(0.2)
        process.kill()
        with pytest.raises(WorkerError, match="died while it served round 1") as caught:
            waiting.result()
    assert f"{address_of(train)}.log" in str(caught.value)
    assert bits(worker.call(train, node=NODE)) == expected
    (successor,) = serving(train)
    assert successor.pid != process.pid
    assert os.getsid(successor.pid) == successor.pid


def is_claimed(request: TrainRequest) -> bool:
    lock = FileLock(address_of(request).with_name(address_of(request).name.partition("-")[0] + ".lock"))
    try:
        with lock.acquire(timeout=0):
            return False
    except TimeoutError:
        return True


def test_another_run_configuration_code_or_node_has_another_worker(train, evaluate, monkeypatch):
    mine = remote.to_address(train, NODE)
    assert remote.to_address(evaluate, NODE) == remote.to_address(replace(train, round=5, client_id=1), NODE) == mine
    others = [
        remote.to_address(train, "partition-1"),
        remote.to_address(replace(train, experiment="another"), NODE),
        remote.to_address(replace(train, config=config(trainer__lr=1e-3)), NODE),
    ]
    monkeypatch.setattr(remote, "code_hash", lambda: "other code")
    others.append(remote.to_address(train, NODE))
    assert len({mine, *others}) == 5
    assert all(len(address) < 100 for address in others)


def test_a_folder_of_somebody_else_is_not_used(train, monkeypatch):
    somebody = os.getuid() + 54321
    monkeypatch.setattr(os, "getuid", lambda: somebody)
    try:
        with pytest.raises(WorkerError, match=f"flwr-agent-{somebody} belongs to another user"):
            remote.to_address(train, NODE)
    finally:
        Path(tempfile.gettempdir(), f"flwr-agent-{somebody}").rmdir()


def served(address: str, idle_timeout_s: float, owner: int = 0) -> threading.Thread:
    """A worker in a thread, listening."""
    thread = threading.Thread(target=remote.main, args=(address, idle_timeout_s, owner), daemon=True)
    thread.start()
    assert wait_for(lambda: spawn.listens(address))
    return thread


def test_a_worker_that_nobody_needs_ends_and_takes_its_socket_along(socket):
    thread = served(socket, 0.3)
    thread.join(30)
    assert not thread.is_alive()
    assert not Path(socket).exists()


def test_a_worker_does_not_end_while_somebody_is_about_to_call(socket):
    with FileLock(Path(socket).with_name("w.lock")):
        thread = served(socket, 0.1)
        thread.join(0.6)
        assert thread.is_alive()
        assert Path(socket).exists()
    thread.join(30)
    assert not thread.is_alive()


@pytest.mark.parametrize(
    "frame",
    [
        b"no json",
        b"cbuiltins\nexec\n(S'raise SystemExit'\ntR.",
        b'{"kind": "TrainRequest", "fields": {"arrays": "/none"}}',
        b'{"kind": "Nothing", "fields": {}}',
        b"[]",
    ],
)
def test_a_frame_that_is_no_request_is_answered_with_an_error_and_never_run(socket, frame):
    thread = served(socket, 1.0)
    with Client(socket, "AF_UNIX") as connection:
        connection.send_bytes(frame)
        assert json.loads(connection.recv_bytes()).keys() == {"error"}
    with Client(socket, "AF_UNIX"):
        pass
    assert thread.is_alive()
    thread.join(30)


def test_every_message_crosses_unchanged_as_json_and_its_tensors_do_not_stay_behind(tmp_path, train, evaluate):
    messages = [
        replace(train, arrays=model()),
        replace(evaluate, arrays=model()),
        TrainReply(round=3, client_id=1, arrays=model(), num_examples=7, metrics={"reward": 0.1 + 0.2, "x": 1e-300}),
        EvaluateReply(
            round=3,
            metrics={"success": 1 / 3},
            outcomes={"sampled/success": (1.0, 0.0), "empty": ()},
            tasks=("a",),
            types=("",),
        ),
    ]
    for message in messages:
        frame = remote._encode(message, tmp_path)
        found = remote._decode(json.loads(frame))
        assert list(tmp_path.iterdir()) == []
        assert type(found) is type(message)
        for field in fields(message):
            expected, got = getattr(message, field.name), getattr(found, field.name)
            if field.name == "arrays":
                assert {name: values.tobytes() for name, values in got.items()} == {
                    name: np.asarray(values).tobytes() for name, values in expected.items()
                }
            else:
                assert got == expected


def test_nothing_is_pickled():
    source = Path(remote.__file__).read_text(encoding="utf-8")
    assert "pickle" not in source
    assert ".send(" not in source
    assert ".recv(" not in source
    assert source.count(".send_bytes(") == source.count(".recv_bytes(") - 1 == 2


@pytest.mark.parametrize("python", ["/nowhere/python", "/"])
def test_an_interpreter_that_cannot_be_started_is_refused_by_its_key(socket, python):
    with pytest.raises(ConfigError, match=r"worker\.python='/.*cannot be started .* give the path"):
        spawn.start_worker(socket, python=python, idle_timeout_s=1)


def script(file: Path, text: str) -> str:
    """A program that passes for an interpreter which has every package, and then does as `text` says."""
    file.write_text(f'#!/bin/sh\n[ "$1" = -c ] && echo {spawn.SENTINEL} && exit 0\n{text}\n')
    file.chmod(0o755)
    return str(file)


def test_a_worker_that_does_not_come_up_is_an_error_with_the_end_of_its_log(socket, tmp_path):
    with pytest.raises(WorkerError, match="did not start: it said nothing"):
        spawn.start_worker(socket, python=script(tmp_path / "mute", "exit 1"), idle_timeout_s=1)
    sleeper = script(tmp_path / "python", "echo $$ >&2\nexec sleep 600")
    with pytest.raises(WorkerError, match=r"did not start: \d+ \(log: ") as caught:
        spawn.start_worker(socket, python=sleeper, idle_timeout_s=1, timeout_s=0.5)
    pid = int(str(caught.value).partition("start: ")[2].split()[0])
    assert wait_for(lambda: not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)


@pytest.mark.parametrize("python", ["/bin/false", "/bin/true", "/bin/echo"])
def test_a_program_that_is_no_interpreter_is_refused(socket, python):
    with pytest.raises(ConfigError, match=rf"worker\.python='{python}': is no Python interpreter"):
        spawn.start_worker(socket, python=python, needs=["torch"], idle_timeout_s=1)


def test_a_worker_ends_with_its_owner(socket):
    owner = subprocess.Popen(["sleep", "600"])
    thread = served(socket, 600.0, owner.pid)
    thread.join(1.5)
    assert thread.is_alive()
    owner.kill()
    owner.wait()
    thread.join(30)
    assert not thread.is_alive()
    assert not Path(socket).exists()


def idle(folder: Path, name: str, address: str = "") -> tuple[str, psutil.Process]:
    """A process that listens where a worker of that name would, as busy as can be."""
    listen = "import socket,sys,time;s=socket.socket(socket.AF_UNIX);s.bind(sys.argv[1]);s.listen();time.sleep(600)"
    address = address or str(folder / f"{name}.sock")
    spawn.start_worker(
        address, python=script(folder / "python", f"exec {sys.executable} -c '{listen}' $3"), idle_timeout_s=1
    )
    (process,) = [p for p in psutil.process_iter(["cmdline"]) if address in (p.info["cmdline"] or ())]
    return address, process


def test_a_node_has_one_worker_and_ending_it_touches_no_other_node(tmp_path):
    (mine, old), (other, neighbour) = idle(tmp_path, "a-1"), idle(tmp_path, "b-1")
    remote._end_all(remote._stem(str(tmp_path / "a-2.sock")))
    assert wait_for(lambda: not old.is_running() or old.status() == psutil.STATUS_ZOMBIE)
    assert not Path(mine).exists()
    assert neighbour.is_running()
    spawn.end_worker(other)
    assert not Path(other).exists()


def hasty(request: TrainRequest, timeout_s: float = 0.1) -> TrainRequest:
    """The request, of a run that waits for next to no time."""
    federation = replace(request.config.federation, round_timeout_s=timeout_s)
    return replace(request, config=replace(request.config, federation=federation))


def test_a_worker_that_stands_still_is_ended_and_the_node_is_free_again(train, tmp_path):
    request = hasty(train)
    _, process = idle(tmp_path, "", address=remote.to_address(request, "still"))
    process.suspend()
    with pytest.raises(WorkerError, match=r"stood still .* federation.round_timeout_s=0.1 and was ended"):
        remote.ask(request, "still")
    assert wait_for(lambda: not process.is_running() or process.status() == psutil.STATUS_ZOMBIE)
    assert not Path(remote.to_address(request, "still")).exists()
    remote.dismiss("still")


def test_a_request_does_not_wait_for_ever_behind_another(train):
    request = hasty(train, 0.05)
    with (
        FileLock(f"{remote._stem(remote.to_address(request, 'busy'))}.lock"),
        pytest.raises(WorkerError, match=r"has served other requests for 0.15 s; raise federation.round_timeout_s"),
    ):
        remote.ask(request, "busy")


@pytest.mark.parametrize("error", [KeyError("x"), TypeError("x"), AssertionError("x"), MemoryError("x")])
def test_whatever_a_worker_raises_is_its_answer(train, tmp_path, error):
    def serve(_):
        raise error

    frame = remote._encode(train, tmp_path)
    found = json.loads(remote._answer(serve, frame, tmp_path))
    assert found == {"error": f"{type(error).__name__}: {error}"}


def test_a_temporary_folder_with_too_long_a_name_is_named(train, tmp_path, monkeypatch):
    long = tmp_path / ("x" * 100)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    with pytest.raises(WorkerError, match=r"^TMPDIR=/.* bytes too long .* set TMPDIR to a shorter path"):
        remote.to_address(train, NODE)


def test_a_file_where_the_workers_folder_should_be_is_named(train, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / f"flwr-agent-{os.getuid()}").touch()
    with pytest.raises(WorkerError, match=r"flwr-agent-\d+ cannot be the folder of workers \(File exists\); remove it"):
        remote.to_address(train, NODE)


def test_a_process_that_took_over_the_number_of_a_worker_is_left_alone(tmp_path):
    stranger = subprocess.Popen(["sleep", "600"])
    Path(tmp_path / "a-1.sock.pid").write_text(str(stranger.pid))
    spawn.end_worker(str(tmp_path / "a-1.sock"))
    assert stranger.poll() is None
    stranger.kill()
    stranger.wait()


@pytest.mark.slow
def test_a_changed_configuration_replaces_the_node_s_worker_and_a_dismissed_one_is_gone(train):
    worker.call(train, node=NODE)
    (first,) = serving(train)
    changed = replace(train, config=replace(train.config, seed=7))
    worker.call(changed, node=NODE)
    assert not first.is_running()
    (second,) = serving(changed)
    remote.dismiss(NODE)
    assert not second.is_running()
    assert not Path(remote.to_address(changed, NODE)).exists()


def test_a_worker_is_a_process_where_messages_outlive_nothing_or_devices_are_scarce(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    auto = config()
    assert worker.is_inline(auto, has_owner=False)
    assert not worker.is_inline(auto, has_owner=True)
    assert not worker.is_inline(config(worker__python="/usr/bin/python3"), has_owner=False)
    assert worker.is_inline(config(worker__mode="inline"), has_owner=True)
    assert not worker.is_inline(config(worker__mode="process"), has_owner=False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2")
    assert not worker.is_inline(auto, has_owner=False)
