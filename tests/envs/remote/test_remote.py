"""A served environment reads and plays like the one in this process, and bad clients and servers are refused."""

import asyncio
import dataclasses
import gc
import json

import pytest
import requests
from websockets.exceptions import InvalidStatus
from websockets.protocol import State
from websockets.sync.client import connect

from envs import registry
from envs.base import EnvAdapter, Task, Variant
from envs.check import check, play
from envs.remote import client, tokens, wire
from envs.remote.leases import Leases
from flwr_agent.errors import ConfigError, EnvError
from flwr_agent.rl.launch import free_ports
from tests.envs.remote.hosting import TOKEN, Hosted, Tallying, builder, hosted


class Echo:
    """A third party's plain class: repeat the word; its methods run in threads."""

    def tasks(self, split):
        return [Task(f"{split}-{n}", split, {"category": "echo", "word": f"w{n}"}) for n in range(2_500)]

    def reset(self, task, seed):
        self.word = task.meta["word"]
        return f"say {self.word}"

    def step(self, action):
        return "yes", float(action == self.word), True, False, {}

    def oracle(self, task):
        return [task.meta["word"]]


ECHO = f"{__name__}:Echo"
NAMES = ["tinyguess", "minihouse", "webshop", ECHO]


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """Every environment behind a server of its own, started when first asked for."""
    running: dict[str, tuple[object, Hosted]] = {}

    def start(name: str) -> Hosted:
        if name not in running:
            context = hosted(builder(name), tmp_path_factory.mktemp("served"))
            running[name] = (context, context.__enter__())
        return running[name][1]

    yield start
    for context, _ in running.values():
        context.__exit__(None, None, None)


def remote(host: Hosted, **more) -> EnvAdapter:
    return registry.create("remote", host.settings | more.pop("settings", {}), **more)


@pytest.mark.parametrize("name", NAMES)
def test_a_served_environment_gives_the_transcripts_of_the_one_in_this_process(served, name):
    here, there = registry.create(name, {}), remote(served(name))
    assert isinstance(there, EnvAdapter)
    assert (there.name, there.version, there.fingerprint()) == (here.name, here.version, here.fingerprint())
    assert there.system_prompt() == here.system_prompt()
    assert list(there.tasks("train")) == list(here.tasks("train"))
    for task in here.tasks("val")[:3]:
        actions = ["nonsense \ud800", *(here.oracle(task) or ())]
        assert there.oracle(task) == here.oracle(task)
        local = asyncio.run(play(here, task, actions, seed=3))
        assert asyncio.run(play(there, task, actions, seed=3)) == local


@pytest.mark.parametrize("name", ["minihouse", ECHO])
def test_a_served_environment_keeps_the_contract(served, name):
    assert check(remote(served(name)), episodes=1) == []


@pytest.mark.parametrize("style", ["paper", "compact"])
def test_prompts_and_readings_are_the_served_environment_s(served, style):
    from envs.base import View

    here, there = registry.create("webshop", {}, style=style), remote(served("webshop"), style=style)
    view = View("buy tea", "page", ("click[a]", "click[b]"), (("seen", "search[tea]"),), 1)
    bare = View("buy tea", "page", None)
    assert [there.render(v) for v in (view, bare)] == [here.render(v) for v in (view, bare)]
    for text in ("<think>x</think><action>click[a]</action>", "search[tea]", "", "\ud800"):
        assert there.parse_action(text) == here.parse_action(text)


def test_a_variant_is_built_by_the_server(served):
    variant = Variant("obs_variant", {"kind": "v_paraphrase"})
    here, there = registry.create("minihouse", {}, variant=variant), remote(served("minihouse"), variant=variant)
    task = here.tasks("train")[3]
    local = asyncio.run(play(here, task, here.oracle(task), seed=0))
    assert asyncio.run(play(there, task, there.oracle(task), seed=0)) == local
    assert there.fingerprint() == here.fingerprint() != remote(served("minihouse")).fingerprint()


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"style": "fancy"}, "no such prompt style"),
        ({"variant": Variant("bm25_reweight")}, "environment 'tinyguess' has no variants"),
    ],
)
def test_what_the_served_environment_refuses_is_refused(served, more, message):
    with pytest.raises(ConfigError, match=message):
        remote(served("tinyguess"), **more)


def test_episodes_are_spread_over_the_servers(tmp_path):
    with hosted(builder("tinyguess"), tmp_path) as one, hosted(builder("tinyguess"), tmp_path) as two:
        adapter = remote(one, settings={"url": f"{one.url}, {two.url}"})

        async def begin():
            envs = [adapter.make() for _ in range(10)]
            await asyncio.gather(*(env.reset(adapter.tasks("train")[0], seed=0) for env in envs))
            taken = [one.leases.num_taken, two.leases.num_taken]
            await asyncio.gather(*(env.close() for env in envs))
            return taken

        assert asyncio.run(begin()) == [5, 5]


def test_health_says_what_is_served(served):
    host = served("tinyguess")
    response = requests.get(f"{host.url}/health", headers={"Authorization": f"Bearer {TOKEN}"}, timeout=10)
    facts = response.json()
    assert response.headers["Content-Type"] == "application/json"
    assert (facts["env"], facts["protocol"], facts["digest"]) == ("tinyguess", wire.PROTOCOL, host.digest)
    assert facts["splits"] == {"train": 4_000, "val": 1_000, "demo": 1_000}
    assert set(facts["versions"]) == {"env", "flwr-agent", "python"}


def test_the_digest_is_of_the_data_and_the_rules_and_not_of_the_style():
    paper, compact = (registry.create("tinyguess", {}, style=style) for style in ("paper", "compact"))
    assert wire.digest_of(paper) == wire.digest_of(compact)
    assert wire.world_of(paper, "paper", None) != wire.world_of(compact, "compact", None)
    wider = registry.create("webshop", {"search_return_n": 20})
    assert wire.digest_of(wider) != wire.digest_of(registry.create("webshop", {}))


def test_a_wrong_digest_is_refused_and_the_right_one_is_not(served):
    host = served("tinyguess")
    assert remote(host, settings={"digest": host.digest}).name == "tinyguess"
    with pytest.raises(ConfigError, match=rf"env\.digest='0000': http://127.*serves {host.digest}"):
        remote(host, settings={"digest": "0000"})


def test_servers_of_two_environments_are_refused(served):
    one, two = served("tinyguess"), served("minihouse")
    with pytest.raises(ConfigError, match=rf"env\.digest='{one.digest}'"):
        remote(one, settings={"url": f"{one.url},{two.url}"})


def test_a_server_that_is_down_is_left_out_and_none_at_all_is_refused(served, caplog):
    host, down = served("tinyguess"), f"http://127.0.0.1:{free_ports(1)[0]}"
    adapter = remote(host, settings={"url": f"{down},{host.url}"})
    assert [f"{down} cannot be reached" in message for message in caplog.messages] == [True]
    task = adapter.tasks("train")[0]
    for _ in range(2):
        assert asyncio.run(play(adapter, task, adapter.oracle(task), seed=0))[-1].info["success"]
    with pytest.raises(
        ConfigError, match=rf"env\.url='{down}': {down} cannot be reached: .*Connection refused; start one"
    ):
        remote(host, settings={"url": down})


def test_a_server_started_anew_plays_on_if_its_world_is_the_same_and_is_refused_if_not(tmp_path):
    with hosted(builder("webshop"), tmp_path) as host:
        adapter = remote(host)
        task = adapter.tasks("train")[0]
    with hosted(builder("webshop"), tmp_path, port=host.port):
        assert asyncio.run(play(adapter, task, adapter.oracle(task), seed=0))[-1].info["success"]
    with hosted(builder("webshop", search_return_n=20), tmp_path, port=host.port):
        with pytest.raises(EnvError, match="serves another environment than before"):
            asyncio.run(play(adapter, task, [], seed=0))
        with pytest.raises(EnvError, match="serves another environment than before"):
            adapter.oracle(task)


def test_without_the_token_nothing_is_answered(served, tmp_path):
    host = served("tinyguess")
    assert requests.get(f"{host.url}/health", timeout=10).status_code == 401
    for header in ({}, {"Authorization": "Bearer guess"}):
        with pytest.raises(InvalidStatus), connect(f"ws://127.0.0.1:{host.port}/ws", additional_headers=header):
            pass
    (tmp_path / "wrong").write_text("a token of somebody else")
    with pytest.raises(ConfigError, match=r"env\.token_file=.*refuses this token"):
        remote(host, settings={"token_file": str(tmp_path / "wrong")})


def test_a_token_that_a_server_shows_is_private_and_goes_with_it(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    with tokens.shown(TOKEN, 21_000) as path:
        assert path.stat().st_mode & 0o777 == 0o600
        assert tokens.read(tokens.AUTO, "http://localhost:21000") == TOKEN
    assert not path.exists()


def ask(host: Hosted, *frames: str) -> list[dict]:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    with connect(f"ws://127.0.0.1:{host.port}/ws", additional_headers=headers, proxy=None) as connection:
        answers = []
        for frame in frames:
            connection.send(frame)
            answers.append(json.loads(connection.recv(timeout=10)))
        return answers


@pytest.mark.parametrize(
    "frame",
    [
        "",
        "[]",
        "{",
        "{}",
        '{"op": "nonsense"}',
        '{"op": "step"}',
        '{"op": "step", "episode": ["x"], "seq": 1, "action": ""}',
        '{"op": "step", "episode": "x", "seq": 1e999, "action": ""}',
        '{"op": "reset", "world": "?", "split": "train", "task": "x", "seed": 0, "episode": "x"}',
        '{"op": "tasks", "world": {}, "split": "train", "start": 0}',
        '{"op": "open", "style": "paper", "variant": 3}',
        "[" * 100_000,
    ],
    ids=range(12),
)
def test_a_malformed_request_is_answered_and_the_connection_lives_on(served, frame):
    host = served("tinyguess")
    bad, good = ask(host, frame, '{"op": "open", "style": "paper", "variant": null}')
    assert bad["error"] in ("env", "lost")
    assert "world" in good["ok"]
    assert host.leases.num_taken == 0


def test_a_request_larger_than_the_limit_ends_its_connection_and_nothing_else(served):
    from websockets.exceptions import ConnectionClosed

    host = served("tinyguess")
    with pytest.raises(ConnectionClosed):
        ask(host, '{"op": "' + "x" * wire.MAX_BYTES + '"}')
    assert "world" in ask(host, '{"op": "open", "style": "paper", "variant": null}')[0]["ok"]


def test_a_task_is_the_server_s_own_whatever_the_client_says_it_holds(served):
    adapter = remote(served(ECHO))
    task = adapter.tasks("train")[0]
    forged = dataclasses.replace(task, meta={"word": "mine", "category": "echo"})
    assert asyncio.run(play(adapter, forged, ["mine"], seed=0))[-1].reward == 0.0
    with pytest.raises(EnvError, match="there is no task 'x' in split 'train'"):
        asyncio.run(play(adapter, Task("x", "train"), [], seed=0))


def test_a_full_server_makes_a_client_wait_and_then_fails_its_episode(tmp_path):
    with hosted(builder("tinyguess"), tmp_path, leases=Leases(slots=1, wait_s=0.05)) as host:
        adapter = remote(host, settings={"timeout_s": 1.0})
        task = adapter.tasks("train")[0]

        async def scenario():
            first, second = adapter.make(), adapter.make()
            await first.reset(task, seed=0)
            with pytest.raises(EnvError, match="did not reset in 1 s"):
                await second.reset(task, seed=0)
            waiting = asyncio.ensure_future(second.reset(task, seed=0))
            await asyncio.sleep(0.1)
            await first.close()
            assert (await waiting).info["instruction"]
            await second.close()

        asyncio.run(scenario())


def test_an_environment_that_fails_on_the_server_fails_the_episode_with_its_words(tmp_path):
    class Failing(Tallying):
        def make(self):
            raise ZeroDivisionError("inside")

    with hosted(lambda style, variant: Failing(style=style, variant=variant), tmp_path) as host:
        adapter = remote(host)
        with pytest.raises(EnvError, match="ZeroDivisionError: inside"):
            asyncio.run(play(adapter, adapter.tasks("train")[0], [], seed=0))


def test_close_never_raises_always_lets_the_socket_go_and_gives_the_slot_back(tmp_path, monkeypatch):
    monkeypatch.setattr(client, "CLOSE_S", 0.2)

    async def scenario(adapter, host):
        env = adapter.make()
        await env.close()
        await env.reset(adapter.tasks("train")[0], seed=0)
        broken = env._connection
        broken.transport.abort()
        await env.close()
        await env.close()
        assert env._connection is None
        for _ in range(100):
            if host.leases.num_taken == 0:
                return
            await asyncio.sleep(0.02)
        raise AssertionError

    with hosted(builder("tinyguess"), tmp_path) as host:
        adapter = remote(host)
        asyncio.run(scenario(adapter, host))
        env = adapter.make()
    with asyncio.Runner() as runner:
        runner.run(env.close())

        async def late():
            env._episode = "of a server that is gone"
            await env.close()

        runner.run(late())


def test_an_adapter_s_own_connection_closes_with_it(served):
    adapter = remote(served("tinyguess"))
    adapter.close()
    adapter.close()
    assert adapter.tasks("val")
    connection = adapter.servers[0]._connection
    assert connection.state is State.OPEN
    del adapter
    gc.collect()
    assert connection.state is State.CLOSED


def test_worlds_are_built_once_and_the_oldest_makes_room(tmp_path, monkeypatch):
    monkeypatch.setattr("envs.remote.server.MAX_WORLDS", 2)
    built = []

    def make(style, variant):
        built.append((style, variant and variant.params["kind"]))
        return registry.create("minihouse", {}, style=style, variant=variant)

    with hosted(make, tmp_path) as host:
        first = remote(host)
        for kind in ("v_paraphrase", "v_paraphrase", "v_blind_intro"):
            remote(host, variant=Variant("obs_variant", {"kind": kind}))
        assert built == [("paper", None), ("paper", "v_paraphrase"), ("paper", "v_blind_intro")]
        task = first.tasks("val")[0]
        assert first.oracle(task)
        assert built[3:] == [("paper", None)]


def test_an_episode_that_has_moved_to_another_connection_outlives_the_first(tmp_path, monkeypatch):
    monkeypatch.setattr("envs.remote.server.GRACE_S", 0.2)
    with hosted(builder("tinyguess"), tmp_path) as host:
        adapter = remote(host)

        async def scenario():
            env = adapter.make()
            await env.reset(adapter.tasks("train")[0], seed=0)
            first, env._connection = env._connection, None
            await env.step("1")
            await first.close()
            await asyncio.sleep(0.6)
            assert (await env.step("2")).text in ("higher", "lower", "Correct!")
            await env._connection.close()
            await asyncio.sleep(0.6)
            assert host.leases.num_taken == 0
            with pytest.raises(EnvError, match="closed"):
                await env.step("3")
            await env.close()

        asyncio.run(scenario())
