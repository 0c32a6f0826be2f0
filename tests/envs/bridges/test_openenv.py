"""OpenEnv's wire: what its clients send is answered, and what its servers answer is played."""

import asyncio
import json
import time
from contextlib import contextmanager

import pytest
from websockets.sync.client import connect

from envs import registry
from envs.bridges.openenv import from_openenv, to_openenv
from envs.check import check, play
from envs.remote.listen import listen, port_of
from flwr_agent.errors import ConfigError, EnvError
from tests.envs.remote.hosting import in_thread


@contextmanager
def session(port: int):
    """A bare client: send a message, get the answer."""
    with connect(f"ws://127.0.0.1:{port}/ws", proxy=None) as connection:

        def ask(frame):
            connection.send(frame if isinstance(frame, str) else json.dumps(frame))
            return json.loads(connection.recv(timeout=10))

        yield ask


@pytest.fixture(scope="module")
def port():
    with in_thread(lambda: to_openenv(registry.create("tinyguess", {}))) as port:
        yield port


def test_an_openenv_client_plays_a_task_to_its_end(port):
    adapter = registry.create("tinyguess", {})
    task = adapter.tasks("val")[3]
    with session(port) as ask:
        began = ask({"type": "reset", "data": {"split": "val", "index": 3, "episode_id": "mine"}})
        assert began["type"] == "observation"
        assert began["data"]["observation"]["task_id"] == task.id
        assert (began["data"]["reward"], began["data"]["done"]) == (0.0, False)
        for guess in adapter.oracle(task):
            answer = ask({"type": "step", "data": {"text": guess}})
        assert (answer["data"]["reward"], answer["data"]["done"]) == (1.0, True)
        assert answer["data"]["observation"]["text"] == "Correct!"
        state = {"episode_id": "mine", "step_count": len(adapter.oracle(task))}
        assert ask({"type": "state"}) == {"type": "state", "data": state}


def test_a_reset_without_an_index_takes_the_seed_s_task(port):
    tasks = registry.create("tinyguess", {}).tasks("train")
    with session(port) as ask:
        for data, number in (({}, 0), ({"seed": 7}, 7), ({"seed": len(tasks) + 2}, 2)):
            assert ask({"type": "reset", "data": data})["data"]["observation"]["task_id"] == tasks[number].id


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        ("{", "INVALID_JSON"),
        ({"type": "dance"}, "UNKNOWN_TYPE"),
        ({"type": "step", "data": {"number": 3}}, "VALIDATION_ERROR"),
        ({"type": "reset", "data": {"index": 99_999}}, "VALIDATION_ERROR"),
        ({"type": "reset", "data": {"split": "odd"}}, "EXECUTION_ERROR"),
        ({"type": "step", "data": {"text": "25"}}, "EXECUTION_ERROR"),
    ],
)
def test_a_bad_message_is_answered_with_openenv_s_code_and_the_session_lives_on(port, frame, code):
    with session(port) as ask:
        answer = ask(frame)
        assert (answer["type"], answer["data"]["code"]) == ("error", code)
        assert ask({"type": "reset", "data": {}})["type"] == "observation"


def test_sessions_do_not_share_their_episodes(port):
    with session(port) as one, session(port) as two:
        one({"type": "reset", "data": {"index": 1}})
        two({"type": "reset", "data": {"index": 2}})
        one({"type": "step", "data": {"text": "1"}})
        assert [ask({"type": "state"})["data"]["step_count"] for ask in (one, two)] == [1, 0]


def test_a_session_that_ends_gives_its_slot_back():
    with in_thread(lambda: to_openenv(registry.create("tinyguess", {}), slots=1)) as port:
        for _ in range(3):
            start = time.monotonic()
            with session(port) as ask:
                assert ask({"type": "reset", "data": {}})["type"] == "observation"
            assert time.monotonic() - start < 10


def test_an_openenv_server_is_played_like_the_environment_itself(port):
    here = registry.create("tinyguess", {})
    there = from_openenv(f"http://127.0.0.1:{port}", splits={"train": 20, "val": 10})
    for number in range(4):
        task, actions = there.tasks("val")[number], here.oracle(here.tasks("val")[number])
        steps = asyncio.run(play(there, task, actions, seed=0))
        local = asyncio.run(play(here, here.tasks("val")[number], actions, seed=0))
        assert [(s.text, s.reward, s.done, s.info["success"]) for s in steps] == [
            (s.text, s.reward, s.done, s.info["success"]) for s in local
        ]


def test_a_bridged_environment_keeps_the_contract(port):
    there = from_openenv(f"http://127.0.0.1:{port}", splits={"train": 20, "val": 10})
    assert check(there, episodes=2) == []


def test_fields_of_other_names_are_read_and_written():
    async def handle(connection):
        async for frame in connection:
            message = json.loads(frame)
            said = message["data"].get("move", "start")
            data = {"observation": {"board": f"saw {said}", "extra": 1}, "reward": None, "done": said == "stop"}
            await connection.send(json.dumps({"type": "observation", "data": data}))

    class Server:
        async def __aenter__(self):
            self.server = await listen(handle, dict, host="127.0.0.1", port=0, token=None)
            return port_of(self.server)

        async def __aexit__(self, *_):
            self.server.close()
            await self.server.wait_closed()

    with in_thread(Server) as port:
        adapter = from_openenv(f"http://127.0.0.1:{port}", splits={"train": 1}, action="move", observation="board")
        steps = asyncio.run(play(adapter, adapter.tasks("train")[0], ["left", "stop"], seed=0))
    assert [step.text for step in steps] == ["saw start", "saw left", "saw stop"]
    assert (steps[-1].done, steps[-1].reward, steps[-1].info["extra"]) == (True, 0.0, 1)


def test_a_server_that_refuses_or_is_gone_fails_the_episode(port):
    adapter = from_openenv(f"http://127.0.0.1:{port}", splits={"odd": 1})
    with pytest.raises(EnvError, match="EXECUTION_ERROR"):
        asyncio.run(play(adapter, adapter.tasks("odd")[0], [], seed=0))
    gone = from_openenv("http://127.0.0.1:9", splits={"train": 1})
    with pytest.raises(EnvError, match="ConnectionRefusedError"):
        asyncio.run(play(gone, gone.tasks("train")[0], [], seed=0))


def test_what_is_no_address_or_no_split_is_refused(port):
    with pytest.raises(ConfigError, match="give http://HOST:PORT"):
        from_openenv("host:80", splits={"train": 1})
    with pytest.raises(ConfigError, match=r"split='val'"):
        from_openenv(f"http://127.0.0.1:{port}", splits={"train": 1}).tasks("val")
