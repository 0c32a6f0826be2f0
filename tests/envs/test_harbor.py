"""The environment as a whole: the shipped tasks, the episode's rules, the prompts, and random commands."""

import asyncio
import os
import random
import shutil

import pytest

from envs.base import Task, View
from envs.check import check, play
from envs.harbor import Harbor, shipped
from flwr_agent.errors import ConfigError, DataError, EnvError
from tests.envs.harbor_tasks import episodes_left, processes_with, put, shared_folder

SPLITS = ("train", "val", "demo")


@pytest.fixture
def adapter(bwrap):
    return Harbor(style="compact")


def played(adapter, task, actions):
    return asyncio.run(play(adapter, task, actions, seed=0))


def task_of(adapter):
    return adapter.tasks("train")[0]


@pytest.mark.parametrize("category", shipped.CATEGORIES, ids=lambda category: category.__name__)
def test_the_oracle_solves_every_shipped_task_and_doing_nothing_none(adapter, category):
    tasks = [task for split in SPLITS for task in adapter.tasks(split) if task.meta["category"] == category.__name__]
    assert len(tasks) == sum(shipped.NUM_TASKS.values())

    async def both():
        oracle = (play(adapter, task, adapter.oracle(task), seed=0) for task in tasks)
        nothing = (play(adapter, task, ["submit"], seed=0) for task in tasks)
        return await asyncio.gather(*oracle), await asyncio.gather(*nothing)

    solved, unsolved = asyncio.run(both())
    assert [steps[-1].reward for steps in solved] == [1.0] * len(tasks)
    assert [steps[-1].reward for steps in unsolved] == [0.0] * len(tasks)
    assert all(steps[-1].info["success"] for steps in solved)
    assert not any(steps[-1].info["success"] for steps in unsolved)


def test_more_than_twenty_tasks_are_shipped_in_disjoint_splits(adapter):
    ids = [task.id for split in SPLITS for task in adapter.tasks(split)]
    assert len(ids) == len(set(ids)) == 80
    assert {task.meta["category"] for task in adapter.tasks("val")} == {one.__name__ for one in shipped.CATEGORIES}
    instructions = {adapter._specs[id_].solution() + str(adapter._specs[id_].env) for id_ in ids}
    assert len(instructions) > len(shipped.CATEGORIES)


def test_the_shipped_tasks_are_the_same_on_every_machine(tmp_path, monkeypatch):
    monkeypatch.setattr("pathlib.Path.home", lambda: tmp_path)
    first = shipped.folder()
    assert first == shipped.folder()
    shipped.write(shipped._files(), tmp_path / "again")
    from envs.harbor.tasks import digest

    assert digest(first) == digest(tmp_path / "again")
    assert [path.name for path in first.parent.iterdir()] == [first.name]


def test_the_contract_of_environments_is_kept(bwrap, tmp_path):
    for split in ("train", "val"):
        put(tmp_path, f"of-{split}", split=split)
    assert check(Harbor(data_path=str(tmp_path), style="compact"), max_steps=4) == []


def test_an_episode_starts_with_the_instruction_and_the_working_directory(adapter):
    (step,) = played(adapter, task_of(adapter), [])
    instruction = step.info["instruction"]
    assert step.text == f"{instruction}\n\nWorking directory: /app"
    assert not step.done


def test_the_last_command_allowed_calls_the_verifier(adapter):
    adapter._max_commands = 2
    task = task_of(adapter)
    steps = played(adapter, task, ["true", adapter.oracle(task)[0]])
    assert (steps[-1].reward, steps[-1].terminated, steps[-1].truncated) == (1.0, False, True)
    assert steps[-1].text == "exit code 0"


def test_success_begins_at_the_threshold(adapter):
    task = next(task for task in adapter.tasks("train") if task.meta["category"] == "tidy")
    half = ["mkdir logs; for f in $(ls *.log | head -n 2); do mv $f logs; done", "submit"]
    step = played(adapter, task, half)[-1]
    assert (step.reward, step.info["success"], step.info["task_score"]) == (0.5, False, 0.5)
    assert played(Harbor(threshold=0.5), task, half)[-1].info["success"]


@pytest.mark.parametrize(
    ("test", "message"),
    [
        ("true", "neither reward.json nor reward.txt"),
        ("echo nan > /logs/verifier/reward.txt", "not a finite number"),
        ("echo soon > /logs/verifier/reward.txt", "not a finite number"),
        ("ln -s /etc/passwd /logs/verifier/reward.txt", "not a plain file"),
        ("sleep 60", "beyond its limit of time"),
    ],
)
def test_a_verifier_without_a_reward_is_a_failed_episode(bwrap, tmp_path, test, message):
    put(tmp_path, toml="[verifier]\ntimeout_sec = 2.0\n", **{"tests/test.sh": test})
    adapter = Harbor(data_path=str(tmp_path))
    env = adapter.make()

    async def fail():
        await env.reset(task_of(adapter), seed=0)
        with pytest.raises(EnvError, match=message):
            await env.step("submit")
        return await env.step("true")

    assert asyncio.run(fail()).done


def test_variables_of_the_task_reach_commands_and_those_of_the_verifier_the_tests_alone(bwrap, tmp_path):
    put(
        tmp_path,
        toml='[environment.env]\nCOLOUR = "blue"\n[verifier.env]\nSIZE = "1"\n',
        **{
            "environment/Dockerfile": "FROM debian\nENV SHAPE=round\nWORKDIR /work\n",
            "tests/test.sh": 'echo "$SIZE" > /logs/verifier/reward.txt; [ "$COLOUR$SHAPE" = blueround ] || exit 1',
        },
    )
    adapter = Harbor(data_path=str(tmp_path))
    steps = played(adapter, task_of(adapter), ["echo $COLOUR $SHAPE $SIZE; pwd", "submit"])
    assert steps[1].text == "exit code 0\nblue round\n/work"
    assert steps[-1].reward == 1.0


def test_a_reset_without_its_files_leaves_nothing(bwrap, shared):
    put(shared, **{"environment/Dockerfile": "FROM debian\nCOPY absent /app/\n"})
    adapter = Harbor(data_path=str(shared))
    with pytest.raises(DataError, match="'absent' is missing"):
        asyncio.run(adapter.make().reset(task_of(adapter), seed=0))
    assert episodes_left(shared) == []


def test_a_folder_for_episodes_that_others_may_not_enter_is_a_failed_episode_not_the_agent_s(bwrap, shared):
    if os.geteuid() != 0:
        pytest.skip("needs root, who is made another user")
    shared.chmod(0o700)
    adapter = Harbor()
    with pytest.raises(EnvError, match=r"nothing runs in .*: bwrap: .*Permission denied"):
        asyncio.run(adapter.make().reset(task_of(adapter), seed=0))
    assert episodes_left(shared) == []


def test_a_task_of_another_folder_is_refused(adapter):
    with pytest.raises(ConfigError, match="lies not in"):
        asyncio.run(adapter.make().reset(Task("t/none", "train"), seed=0))


@pytest.mark.parametrize(
    ("style", "text", "expected"),
    [
        ("paper", "<think>x</think><action>ls -A\nwc A</action> done", ("ls -A\nwc A", True)),
        ("paper", "<action>LS</action>", ("LS", False)),
        ("paper", "<think>x</think> rm -rf /", ("", False)),
        ("compact", "\n  echo  'Two  Words' \nrest", ("echo  'Two  Words'", True)),
        ("compact", " \n", ("", False)),
    ],
)
def test_a_command_keeps_its_case_and_prose_is_not_run(bwrap, style, text, expected):
    assert Harbor(style=style).parse_action(text) == expected


def test_prompts_hold_the_task_the_rules_and_the_past(bwrap):
    view = View("count lines", "exit code 0\n3", None, (("Working directory: /app", "wc -l a"),), num_steps=1)
    paper = Harbor().render(view)
    assert "Your task: count lines" in paper
    assert "Action 1: 'wc -l a'" in paper
    assert "<action> </action>" in paper
    assert "submit" in paper
    assert Harbor(style="compact").render(view).endswith("Working directory: /app > wc -l a\nexit code 0\n3 >")


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"sandbox": "chroot"}, r"env\.sandbox"), ({"data_path": "/absent"}, r"env\.data_path")],
)
def test_a_setting_that_does_not_fit_is_refused(bwrap, settings, message):
    with pytest.raises(ConfigError, match=message):
        Harbor(**settings).tasks("train")


def test_settings_that_change_what_success_is_change_the_fingerprint(bwrap, tmp_path):
    put(tmp_path)
    adapters = [Harbor(), Harbor(threshold=0.5), Harbor(max_commands=3), Harbor(data_path=str(tmp_path))]
    assert len({adapter.fingerprint() for adapter in adapters}) == 4


WORDS = """rm -rf ls cat / /app /tests /logs/verifier /proc/self/mem /dev/zero ~ . .. * ; && || | & > >> < $( ) ` ' " { }
[ ] [[ ]] ! if then fi for do done while : exit exec kill -9 -1 $$ $PPID ulimit -u unlimited mount umount chmod 000 777 -R
chown ln -s mkfifo dd if=/dev/zero of=x bs=1M count=9 sleep 9 yes head -c 99999 trap '' EXIT eval source set -e unset PATH
export LD_PRELOAD=x cd mkdir touch echo printf %s %n answer.txt 42 su sudo unshare nc"""


def scramble(draw):
    """A random command: words of the shell, any characters, or a very long one."""
    kind = draw.randrange(10)
    if kind == 0:
        return "".join(
            chr(draw.choice((draw.randrange(32), draw.randrange(0xD800), draw.randrange(0x110000)))) for _ in range(40)
        )
    if kind == 1:
        return draw.choice(WORDS.split()) * draw.randrange(1, 40_000)
    return " ".join(draw.choices(WORDS.split(), k=draw.randrange(1, 12)))


@pytest.fixture
def shared(monkeypatch):
    """Where episodes keep their folders; every user may look into it."""
    folder = shared_folder()
    monkeypatch.setattr("tempfile.tempdir", str(folder / "episodes"))
    yield folder
    shutil.rmtree(folder)


def test_five_hundred_random_commands_end_as_data(bwrap, shared):
    adapter = Harbor(command_timeout_s=0.5, max_commands=10)
    tasks = adapter.tasks("train")

    async def episode(number):
        draw = random.Random(number)
        env = adapter.make()
        steps = [await env.reset(tasks[number % len(tasks)], seed=0)]
        while not steps[-1].done:
            steps.append(await env.step(scramble(draw)))
        await env.close()
        return steps[1:]

    async def four_at_a_time():
        return [steps for at in range(0, 52, 4) for steps in await asyncio.gather(*map(episode, range(at, at + 4)))]

    episodes = asyncio.run(four_at_a_time())
    assert sum(len(steps) for steps in episodes) >= 500
    assert all(step.text.startswith(("exit code ", "not run: ")) for steps in episodes for step in steps)
    assert all(len(step.text) < 5000 and 0.0 <= step.reward <= 1.0 for steps in episodes for step in steps)
    assert not any("bwrap: " in step.text for steps in episodes for step in steps)
    assert episodes_left(shared) == []


def test_an_episode_cancelled_at_any_moment_leaves_nothing(bwrap, shared):
    adapter = Harbor()
    task = task_of(adapter)

    async def episode():
        env = adapter.make()
        try:
            await env.reset(task, seed=0)
            for command in ("true", "sleep 600.75", "submit"):
                await env.step(command)
        finally:
            await env.close()

    async def cancelled(draw):
        for _ in range(12):
            playing = [asyncio.ensure_future(episode()) for _ in range(4)]
            await asyncio.sleep(draw.random() * 0.3)
            for one in playing:
                one.cancel()
            _, hanging = await asyncio.wait(playing, timeout=30)
            assert not hanging

    asyncio.run(cancelled(random.Random(1)))
    assert episodes_left(shared) == []
    assert processes_with("600.75") == []
