"""What an agent may try in a sandbox: each attempt fails safely, and the episode ends as data."""

import os
import shutil
import socket
import time
from pathlib import Path

import pytest

from tests.envs.harbor_tasks import PLAIN_UID, episodes_left, play, processes_with, put, shared_folder

pytestmark = pytest.mark.usefixtures("bwrap")
CALLERS = ["root", "plain"]
ALLOCATE = '$x = "a" x shift; print "held\\n"; sleep shift'


@pytest.fixture(params=CALLERS)
def caller(request):
    if request.param == "root" and os.geteuid() != 0:
        pytest.skip("needs root, who must be held back as well")
    return request.param


@pytest.fixture
def data():
    folder = shared_folder()
    put(folder)
    yield folder
    shutil.rmtree(folder)


def texts(caller, data, *actions, **settings):
    (episode,) = play(caller, data, [("t/one", list(actions))], **settings)
    assert episode["error"] == ""
    assert episodes_left(data) == []
    return [text for text, _, _ in episode["steps"][1:]]


def last(caller, data, *actions, **settings):
    (episode,) = play(caller, data, [("t/one", list(actions))], **settings)
    assert episode["error"] == ""
    return episode["steps"][-1]


def test_a_command_is_answered_and_a_solved_task_pays(caller, data):
    ran, _ = texts(caller, data, "echo hello; pwd; false", "submit")
    assert ran == "exit code 1\nhello\n/app"
    assert last(caller, data, "echo 42 > answer.txt", "submit") == ["submitted", 1.0, True]
    assert last(caller, data, "submit") == ["submitted", 0.0, True]


def test_the_user_has_no_rights_and_no_name_of_the_caller(caller, data):
    (said,) = texts(caller, data, "id -u; whoami; grep CapEff /proc/self/status; unshare -U true || echo refused")
    assert said.split("\n")[1:4] == ["1000", "agent", "CapEff:\t0000000000000000"]
    assert said.endswith("refused")


def test_a_fork_bomb_hits_the_limit_and_the_episode_goes_on(caller, data):
    bomb = "bomb() { bomb | bomb & bomb; }; bomb; sleep 600.125"
    many = "for i in $(seq 200); do sleep 600.125 & done; jobs -p | wc -l"
    boom, crowd, alive, end = texts(caller, data, bomb, many, "echo alive", "submit", command_timeout_s=3)
    assert "Resource temporarily unavailable" in boom
    assert "Resource temporarily unavailable" in crowd
    assert alive == "exit code 0\nalive"
    assert end == "submitted"
    assert processes_with("600.125") == []


def test_an_allocation_of_3_gb_fails_and_one_within_the_limit_does_not(caller, data):
    large, small = texts(caller, data, f"perl -e '{ALLOCATE}' 3e9", f"perl -e '{ALLOCATE}' 3e7")
    assert large.endswith("Out of memory!") or "Out of memory in" in large
    assert not large.startswith("exit code 0")
    assert small == "exit code 0\nheld"


def test_processes_that_are_too_large_together_are_stopped(caller, data):
    put(data, toml="[environment]\nmemory_mb = 200\n")
    hungry = f"for i in 1 2 3 4 5 6 7 8; do perl -e '{ALLOCATE}' 5e7 60 & done; wait"
    stopped, alive = texts(caller, data, hungry, "echo alive")
    assert stopped.startswith("exit code 137 (stopped: it used too much memory)")
    assert alive == "exit code 0\nalive"


def test_there_is_no_network(caller, data):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        socket.create_connection(("127.0.0.1", port)).close()
        local, remote, devices = texts(
            caller,
            data,
            f"exec 3<>/dev/tcp/127.0.0.1/{port} && echo reached",
            "exec 3<>/dev/tcp/1.1.1.1/53 && echo reached",
            "tail -n +3 /proc/net/dev | cut -d: -f1",
            command_timeout_s=5,
        )
    assert "Connection refused" in local
    assert "Network is unreachable" in remote
    assert devices.split() == ["exit", "code", "0", "lo"]


def test_links_out_of_the_sandbox_lead_nowhere_and_are_removed_as_links(caller, data):
    secret = data / "secret.txt"
    secret.write_text("do not read")
    secret.chmod(0o666)
    read, write, folder, shadow, _ = texts(
        caller,
        data,
        f"ln -s {secret} s; cat s",
        "echo hacked > s",
        f"ln -s {data} d; rm -rf d/train; ls d/",
        "ln -s /etc/shadow w; cat w; cat /proc/1/root/etc/shadow",
        "submit",
    )
    assert all("No such file or directory" in said for said in (read, write, folder, shadow))
    assert secret.read_text() == "do not read"
    assert (data / "train" / "one" / "task.toml").is_file()


def test_a_link_in_place_of_the_answer_is_resolved_inside(caller, data):
    answer = data / "answer"
    answer.write_text("42")
    assert last(caller, data, f"ln -s {answer} answer.txt", "submit") == ["submitted", 0.0, True]


def test_a_command_that_never_ends_is_stopped_and_leaves_nothing(caller, data):
    deaf = "trap '' TERM INT HUP; setsid sleep 600.25 & sleep 600.25 & while :; do sleep 600.25; done"
    begin = time.monotonic()
    stopped, alive, end = texts(
        caller, data, deaf, "echo alive; ls /proc | grep -c '^[0-9]'", "submit", command_timeout_s=1
    )
    assert time.monotonic() - begin < 60
    assert stopped == "exit code 124 (stopped: it ran too long)"
    assert alive.startswith("exit code 0\nalive")
    assert end == "submitted"
    assert processes_with("600.25") == []


def test_what_is_left_in_the_background_ends_with_its_command(caller, data):
    started, seen = texts(
        caller,
        data,
        "nohup setsid sleep 600.5 >/dev/null 2>&1 & disown",
        "cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -c '[6]00.5'",
    )
    assert started == "exit code 0"
    assert seen == "exit code 1\n0"
    assert processes_with("600.5") == []


def test_the_reward_is_out_of_reach(caller, data):
    write = "mkdir -p /logs/verifier; echo 1 > /logs/verifier/reward.txt; echo '{\"reward\": 1}' > /logs/verifier/reward.json"
    loop = f"(setsid bash -c 'while :; do {write}; done' >/dev/null 2>&1 &); sleep 0.2"
    seen, written, _, end = texts(caller, data, "ls /tests /logs /solution", write, loop, "submit")
    assert seen.count("No such file or directory") == 3
    assert written.count("Read-only file system") + written.count("No such file or directory") == 3
    assert end == "submitted"
    assert last(caller, data, write, loop, "submit")[1] == 0.0


def test_programs_and_start_files_of_the_agent_are_not_the_verifier_s(caller, data):
    fake = "printf '#!/bin/bash\\necho 42\\n' > cat; chmod +x cat; mkdir -p ~/bin; cp cat ~/bin; cp cat /tmp"
    start = (
        "echo 'cat() { echo 42; }; export -f cat; export PATH=/app:$PATH' | tee ~/.bashrc ~/.bash_profile ~/.profile"
    )
    export = "export PATH=/app:$PATH BASH_ENV=/app/cat"
    assert last(caller, data, fake, start, export, "submit")[1] == 0.0


def test_nothing_is_written_outside_the_episode_s_folders(caller, data):
    places = "/ /usr /usr/bin /etc /dev /logs /proc /var /home"
    (said,) = texts(caller, data, f"for place in {places}; do touch $place/x 2>/dev/null && echo $place; done; true")
    assert said == "exit code 0"


def test_the_caller_s_environment_and_processes_are_not_seen(caller, data, monkeypatch):
    monkeypatch.setenv("FLWR_AGENT_SECRET", "do-not-read")
    (said,) = texts(caller, data, "env; cat /proc/*/environ | tr '\\0' '\\n'; cat /proc/[0-9]*/cmdline")
    assert "HOME=/root" in said
    assert "do-not-read" not in said
    assert "pytest" not in said


def test_a_flood_of_output_is_stopped_and_only_its_end_is_shown(caller, data):
    flood, tail = texts(caller, data, "yes flood", "seq 3000")
    assert flood.startswith("exit code 137 (stopped: it printed too much)\n")
    assert len(flood) < 5000
    assert tail.endswith("\n2999\n3000")
    assert len(tail) <= 4096 + len("exit code 0\n")


def test_a_file_beyond_the_limit_fails_and_folders_beyond_it_end_the_episode(caller, data):
    put(data, toml="[environment]\nstorage_mb = 20\n")
    (large,) = texts(caller, data, "head -c 30000000 /dev/zero > large")
    assert "File too large" in large or "File size limit exceeded" in large
    fill = "for i in 1 2 3; do head -c 15000000 /dev/zero > f$i; done"
    text, reward, done = last(caller, data, fill, "submit")
    assert (text, reward, done) == ("", 0.0, True)
    assert texts(caller, data, fill)[0].startswith("exit code 137 (stopped: the folders hold too much")


def test_folders_however_deep_or_locked_are_removed(caller, data):
    deep = """perl -e 'for (1..1200) { mkdir "dddddddd"; chdir "dddddddd" or die }; print "deep"'"""
    said, _, locked, end = texts(
        caller, data, deep, "mkdir -p a/b; touch a/b/c; chmod 000 a/b a", "chmod 000 . ~ /tmp", "submit"
    )
    assert said == "exit code 0\ndeep"
    assert locked == "exit code 0"
    assert end == "submitted"


def test_a_working_directory_that_is_gone_is_the_agent_s_own_loss(caller, data):
    put(data, **{"environment/Dockerfile": "FROM ubuntu\nWORKDIR /app/src\n"})
    gone, where, end = texts(caller, data, "rm -rf /app/src", "pwd", "submit")
    assert gone == "exit code 0"
    assert where.endswith("\n/")
    assert end == "submitted"


def test_several_episodes_at_once_do_not_meet(caller, data):
    for number in range(8):
        put(
            data,
            f"n{number}",
            **{"tests/test.sh": f"grep -qx {number} answer.txt && n=1; echo ${{n:-0}} > /logs/verifier/reward.txt"},
        )
    plans = [
        (f"t/n{n}", ["ls", "sleep 0.3; ls /proc | grep -c '^[0-9]' > /tmp/n", f"echo {n} > answer.txt", "submit"])
        for n in range(8)
    ]
    for episode in play(caller, data, plans):
        assert [text for text, _, _ in episode["steps"][1:]] == [
            "exit code 0",
            "exit code 0",
            "exit code 0",
            "submitted",
        ]
        assert episode["steps"][-1][1] == 1.0
    assert episodes_left(data) == []


def test_a_root_caller_gives_each_episode_a_user_of_its_own(data):
    if os.geteuid() != 0:
        pytest.skip("needs root")
    from envs.harbor.bubblewrap import _dedicated_uid

    uids = {_dedicated_uid(Path(f"/tmp/flwr-agent-harbor-{name}")) for name in "abcdefgh"}  # noqa: S108
    assert len(uids) > 4
    assert all(61184 <= uid <= 65519 for uid in uids)
    assert PLAIN_UID not in uids
