"""The container sandbox against a stand-in for the `docker` program: a script that notes its arguments and plays along."""

import asyncio
import shlex

import pytest

from envs.check import play
from envs.harbor import Harbor, docker
from envs.harbor.tasks import load
from flwr_agent.errors import ConfigError
from tests.envs.harbor_tasks import put

ENGINE = """#!/bin/bash
printf '%q ' "$@" >> {log}; echo >> {log}
case "$1" in
    build) echo sha256:abc ;;
    exec) if [ "${{*: -1}}" = pwd ]; then echo /srv; else eval "${{*: -1}}"; fi ;;
    run) for word in "$@"; do
            case "$word" in *:/logs/verifier) echo 0.5 > "${{word%%:*}}/reward.txt" ;; esac
         done ;;
esac
"""
TOML = """
[agent]
user = "agent"
[verifier]
env = { KEY = "k" }
[environment]
memory_mb = 512
cpus = 2
env = { COLOUR = "blue" }
workdir = "/srv"
"""


@pytest.fixture
def engine(tmp_path, monkeypatch):
    """Calls that the stand-in has seen."""
    folder = tmp_path / "bin"
    folder.mkdir()
    log = folder / "calls"
    log.touch()
    (folder / "docker").write_text(ENGINE.format(log=log))
    (folder / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return lambda: [shlex.split(line) for line in log.read_text().splitlines()]


def test_the_agent_s_container_has_no_network_no_rights_and_no_tests(tmp_path):
    task = load(put(tmp_path, toml=TOML))
    argv = docker.run_argv(task, "box", "image")
    for pair in (
        ["--network", "none"],
        ["--cap-drop", "ALL"],
        ["--security-opt", "no-new-privileges"],
        ["--memory", "512m"],
        ["--memory-swap", "512m"],
        ["--cpus", "2"],
        ["--pids-limit", "256"],
        ["--env", "COLOUR=blue"],
        ["--workdir", "/srv"],
    ):
        assert pair in [argv[at : at + 2] for at in range(len(argv))]
    assert argv[-4:] == ["--entrypoint", "sleep", "image", "infinity"]
    assert not any("tests" in word or "verifier" in word or "KEY" in word for word in argv)


def test_the_verifier_s_container_has_the_tests_read_only_and_the_reward_folder(tmp_path):
    task = load(put(tmp_path, toml=TOML))
    argv = docker.verify_argv(task, "box-verifier", "image", tmp_path / "reward")
    assert f"{task.folder}/tests:/tests:ro" in argv
    assert f"{tmp_path}/reward:/logs/verifier" in argv
    assert {"KEY=k", "COLOUR=blue", "--rm", "none"} <= set(argv)
    assert argv[-4:] == ["--entrypoint", "bash", "image", "/tests/test.sh"]


def test_an_episode_builds_runs_verifies_in_a_fresh_container_and_removes_all(tmp_path, engine):
    put(tmp_path, toml=TOML)
    adapter = Harbor(data_path=str(tmp_path), sandbox="docker", command_timeout_s=2.0, threshold=0.5)
    (task,) = adapter.tasks("train")
    steps = asyncio.run(play(adapter, task, ["echo hello", "sleep 30", "submit"], seed=0))
    assert steps[0].text.endswith("Working directory: /srv")
    assert steps[1].text == "exit code 0\nhello"
    assert steps[2].text.startswith("exit code 124 (stopped: it ran too long)")
    assert (steps[3].reward, steps[3].info["success"]) == (0.5, True)
    calls = engine()
    name = calls[2][calls[2].index("--name") + 1]
    assert [call[0] for call in calls] == [
        "version",
        "build",
        "run",
        "exec",
        "exec",
        "exec",
        "restart",
        "commit",
        "run",
        "rm",
        "rmi",
        "rm",
    ]
    assert calls[1] == ["build", "--quiet", str(tmp_path / "train" / "one" / "environment")]
    assert calls[2][-2:] == ["sha256:abc", "infinity"]
    assert calls[4] == ["exec", "--user", "agent", name, "bash", "-c", "echo hello"]
    assert calls[6] == ["restart", "--time", "0", name]
    assert calls[7] == ["commit", name, f"{name}-end"]
    assert calls[-3:] == [
        ["rm", "--force", f"{name}-verifier"],
        ["rmi", "--force", f"{name}-end"],
        ["rm", "--force", name],
    ]


def test_a_task_s_own_image_is_not_built(tmp_path, engine):
    put(tmp_path, toml='[environment]\ndocker_image = "example/task:1"\n')
    adapter = Harbor(data_path=str(tmp_path), sandbox="docker")
    asyncio.run(play(adapter, adapter.tasks("train")[0], [], seed=0))
    assert "build" not in [call[0] for call in engine()]
    assert "example/task:1" in engine()[1]


def test_without_a_program_or_an_engine_the_setting_is_refused(tmp_path, monkeypatch, engine):
    (tmp_path / "bin" / "docker").write_text("#!/bin/sh\nexit 1\n")
    with pytest.raises(ConfigError, match=r"env\.sandbox='docker': no docker engine answers"):
        Harbor(sandbox="docker")
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ConfigError, match="needs the docker command"):
        Harbor(sandbox="docker")
