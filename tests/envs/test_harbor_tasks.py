"""Task directories: what is read, and what is refused by file and field."""

import pytest

from envs.harbor import tasks
from envs.harbor.tasks import TaskSpec
from envs.registry import SHARED, create, knobs
from flwr_agent.errors import ConfigError, DataError
from tests.envs.harbor_tasks import put

FULL = """
[agent]
timeout_sec = 60
user = "agent"
[verifier]
timeout_sec = 12.5
env = { MODE = "strict" }
environment_mode = "shared"
[environment]
build_timeout_sec = 600.0
workdir = "/work"
cpus = 2
memory_mb = 512
storage_mb = 64
gpus = 0
env = { COLOUR = "blue" }
network_mode = "no-network"
allowed_hosts = []
mcp_servers = []
[solution]
env = {}
"""


def test_a_task_directory_is_read_with_what_it_says_and_defaults_for_the_rest(tmp_path):
    folder = put(tmp_path, toml=FULL)
    assert tasks.load(folder) == TaskSpec(
        folder=folder,
        name="t/one",
        instruction="Write 42 to answer.txt.",
        category="test",
        workdir="/work",
        user="agent",
        cpus=2,
        memory_mb=512,
        storage_mb=64,
        timeout_s=60,
        verifier_timeout_s=12.5,
        env={"COLOUR": "blue"},
        verifier_env={"MODE": "strict"},
    )
    bare = put(tmp_path, "bare", **{"task.toml": ""})
    assert tasks.load(bare) == TaskSpec(bare, "bare", "Write 42 to answer.txt.", "none")


@pytest.mark.parametrize(
    ("toml", "field", "message"),
    [
        ("colour = 1", "test.colour|metadata.colour|colour", None),
        ("[environment]\nmemory = 1", "environment.memory", "unknown key; did you mean 'memory_mb'"),
        ("[agents]\ntimeout_sec = 1", "agents", "unknown key; did you mean 'agent'"),
        ("[verifier]\ntime = 1", "verifier.time", "unknown key"),
        ("[environment]\nmemory_mb = '1G'", "environment.memory_mb", "must be of type int, not str"),
        ("[environment]\nmemory_mb = true", "environment.memory_mb", "must be of type int, not bool"),
        ("[environment]\nmemory_mb = -5", "environment.memory_mb", "must not be -5"),
        ("[agent]\ntimeout_sec = nan", "agent.timeout_sec", "must not be nan"),
        ("[agent]\nuser = 1.5", "agent.user", "must be of type str or int, not float"),
        ("[environment.env]\nA = 1", "environment.env.A", "must be of type str"),
        ("[verifier.env]\nKEY = '${HOST_KEY}'", "verifier.env.KEY", "variables of the host"),
        ("[verifier]\nenvironment_mode = 'separate'", "verifier.environment_mode", "only 'shared'"),
        ("[environment]\ngpus = 1", "environment.gpus", "no GPU"),
        ("[environment.healthcheck]\ncommand = 'true'", "environment.healthcheck", "no service"),
        ("[[steps]]\nname = 'a'", "steps", "several steps"),
        ("[environment", "content", "is not TOML"),
    ],
)
def test_a_malformed_task_toml_is_refused_by_file_and_field(tmp_path, toml, field, message):
    folder = put(tmp_path, **{"task.toml": toml})
    with pytest.raises(DataError) as caught:
        tasks.load(folder)
    assert caught.value.path == str(folder / "task.toml")
    assert caught.value.field in field.split("|")
    assert (message or "unknown key") in str(caught.value)


@pytest.mark.parametrize("name", ["instruction.md", "tests/test.sh", "task.toml"])
def test_a_missing_file_is_named(tmp_path, name):
    folder = put(tmp_path)
    (folder / name).unlink()
    with pytest.raises(DataError, match=name):
        tasks.load(folder)


def test_split_folders_are_the_splits(tmp_path):
    for split in ("train", "val", "demo"):
        put(tmp_path, f"of-{split}", split=split)
    assert [list(tasks.specs(tmp_path, split)) for split in ("train", "val", "demo")] == [
        ["t/of-train"],
        ["t/of-val"],
        ["t/of-demo"],
    ]


def test_an_undivided_folder_is_dealt_out_without_overlap_and_the_same_every_time(tmp_path):
    for number in range(20):
        put(tmp_path, f"n{number}", split=".")
    dealt = [list(tasks.specs(tmp_path, split)) for split in ("train", "val", "demo")]
    assert [len(names) for names in dealt] == [12, 4, 4]
    assert len({name for names in dealt for name in names}) == 20
    tasks._all.cache_clear()
    assert [list(tasks.specs(tmp_path, split)) for split in ("train", "val", "demo")] == dealt


def test_two_tasks_of_one_name_are_refused(tmp_path):
    put(tmp_path, "one")
    put(tmp_path, "two", **{"task.toml": '[task]\nname = "t/one"'})
    with pytest.raises(DataError, match=r"two/task\.toml: task\.name: 't/one' is also the name of"):
        tasks.specs(tmp_path, "train")


@pytest.mark.parametrize("split", ["train", "."])
def test_a_folder_that_is_meant_as_a_task_is_not_passed_over(tmp_path, split):
    put(tmp_path, "one", split=split)
    place = put(tmp_path, "two", split=split)
    (tmp_path / split / "assets").mkdir()
    (place / "task.toml").rename(place / "tasks.toml")
    with pytest.raises(DataError, match=r"two/task\.toml: file: is missing; every task needs it"):
        tasks.specs(tmp_path, "train")


def test_tasks_beside_the_splits_are_refused(tmp_path):
    put(tmp_path, "one")
    put(tmp_path, "two", split=".")
    with pytest.raises(DataError, match=r"/two: place: lies beside the splits train, val, demo; move it"):
        tasks.specs(tmp_path, "train")


def test_a_text_that_cannot_be_read_is_named(tmp_path):
    folder = put(tmp_path)
    (folder / "instruction.md").write_bytes(b"\xff\xfe")
    with pytest.raises(DataError, match=r"instruction\.md: content: is not UTF-8"):
        tasks.load(folder)
    (folder / "task.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(DataError, match=r"task\.toml: content: is not UTF-8"):
        tasks.load(folder)


def test_a_folder_without_tasks_and_an_absent_one_are_refused(tmp_path):
    with pytest.raises(DataError, match="no task directory lies here"):
        tasks.specs(tmp_path, "train")
    with pytest.raises(ConfigError, match="split='test'"):
        tasks.specs(tmp_path, "test")


def test_the_solution_is_its_commands_where_it_needs_nothing_beside_it(tmp_path):
    assert tasks.load(put(tmp_path)).solution() == "echo 42 > answer.txt"
    beside = put(tmp_path, "beside", **{"solution/data.txt": "42"})
    mounted = put(tmp_path, "mounted", **{"solution/solve.sh": "cp /solution/x ."})
    configured = put(tmp_path, "configured", toml='[solution.env]\nA = "1"')
    assert [tasks.load(folder).solution() for folder in (beside, mounted, configured)] == [None] * 3


def test_the_digest_follows_every_file(tmp_path):
    folder = put(tmp_path)
    before = tasks.digest(tmp_path)
    assert tasks.digest(tmp_path) == before
    (folder / "tests" / "test.sh").write_text("true")
    assert tasks.digest(tmp_path) != before


@pytest.mark.usefixtures("bwrap")
def test_a_folder_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"env\.data_path=.*/absent': no such folder \(No such file or directory\)"):
        create("harbor", {"data_path": str(tmp_path / "absent")})


@pytest.mark.usefixtures("bwrap")
def test_what_only_a_container_can_give_is_refused_before_any_episode(tmp_path):
    put(tmp_path, **{"environment/Dockerfile": "FROM debian\nRUN apt-get install -y gcc\n"})
    adapter = create("harbor", {"data_path": str(tmp_path)})
    with pytest.raises(DataError, match=r"Dockerfile: RUN: .* needs a container: set env\.sandbox=docker"):
        adapter.tasks("train")


def test_the_settings_are_those_of_the_configuration():
    assert knobs("harbor") - SHARED == {"data_path", "sandbox", "max_commands", "command_timeout_s", "threshold"}


def test_without_bubblewrap_the_package_is_named(monkeypatch):
    from envs.harbor import bubblewrap

    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(bubblewrap, "find_spec", lambda _: None)
    bubblewrap._problem.cache_clear()
    with pytest.raises(ConfigError, match="apt-get install bubblewrap"):
        create("harbor", {})
    bubblewrap._problem.cache_clear()
