"""A verifier's score becomes the reward, beside the environment's own; one that fails fails the episode."""

import asyncio
import json
from importlib.metadata import EntryPoint

import pytest

from envs import registry
from envs.base import EnvAdapter, Task
from envs.check import check, play
from envs.verifier import Transcript, verified
from flwr_agent.errors import ConfigError, EnvError
from tests.envs.remote.hosting import judge


class Essay:
    """Ends with the second action; its own reward is 0.25 an action."""

    def tasks(self, split):
        return [Task(f"{split}-{n}", split, {"category": "essay"}) for n in range(4)]

    def reset(self, task, seed):
        self.count = 0
        return "write two lines"

    def step(self, action):
        self.count += 1
        return f"line {self.count}", 0.25, self.count == 2, False, {"task_score": 0.25 * self.count}

    def oracle(self, task):
        return ["good", "good"]


ESSAY = f"{__name__}:Essay"


def share_of_good(transcript: Transcript) -> float:
    return sum(action == "good" for _, action in transcript.turns) / len(transcript.turns)


async def later(transcript: Transcript) -> dict:
    await asyncio.sleep(0)
    return {"score": 0.5, "success": True}


def broken(transcript: Transcript) -> float:
    raise ZeroDivisionError("inside")


def named(function: str) -> str:
    return f"{__name__}:{function}"


def steps_of(verifier: str, actions, weight: float = 1.0):
    adapter = registry.create(ESSAY, {"verifier": verifier, "verifier_weight": weight})
    return asyncio.run(play(adapter, adapter.tasks("train")[0], actions, seed=0))


def test_the_score_is_the_reward_and_comes_with_the_last_action():
    steps = steps_of(named("share_of_good"), ["good", "bad"])
    assert [step.reward for step in steps] == [0.0, 0.0, 0.5]
    assert steps[-1].info | {"task_score": 0.5, "success": False, "own_score": 0.5, "verifier_score": 0.5} == dict(
        steps[-1].info
    )
    assert not any(step.info["success"] for step in steps)


def test_only_a_full_score_is_a_success_unless_the_verifier_says_so():
    assert steps_of(named("share_of_good"), ["good", "good"])[-1].info["success"]
    assert steps_of(named("later"), ["bad", "bad"])[-1].info["success"]


def test_a_weight_blends_both_rewards():
    steps = steps_of(named("share_of_good"), ["good", "good"], weight=0.8)
    assert [step.reward for step in steps] == pytest.approx([0.0, 0.05, 0.05 + 0.8])
    assert steps[-1].info["task_score"] == pytest.approx(0.2 * 0.5 + 0.8)
    assert not steps[-1].info["success"]


def test_the_verifier_sees_the_whole_episode():
    seen = []
    adapter = verified(registry.create(ESSAY, {}), "none")
    assert adapter.name == ESSAY

    def look(transcript):
        seen.append(transcript)
        return 1.0

    from envs.verifier import Verified

    adapter = Verified(adapter, "look", look, 1.0, source="")
    task = adapter.tasks("train")[0]
    asyncio.run(play(adapter, task, ["a", "b", "c"], seed=0))
    [transcript] = seen
    assert (transcript.task, transcript.instruction, transcript.reward) == (task, "write two lines", 0.5)
    assert transcript.turns == (("write two lines", "a"), ("line 1", "b"))
    assert json.loads(json.dumps(transcript.to_json()))["observation"] == "line 2"


def test_an_environment_with_a_verifier_keeps_the_contract():
    adapter = registry.create(ESSAY, {"verifier": named("share_of_good")})
    assert isinstance(adapter, EnvAdapter)
    assert [p for p in check(adapter) if "fits nothing" not in p] == []
    assert check(registry.create("tinyguess", {"verifier": named("hit")})) == []


def hit(transcript: Transcript) -> float:
    return transcript.reward


def test_an_episode_that_is_judged_is_not_judged_or_paid_again():
    async def scenario():
        env = registry.create(ESSAY, {"verifier": named("share_of_good")}).make()
        await env.reset(Task("x", "train"), seed=0)
        await env.step("good")
        last = await env.step("good")
        late = await env.step("good")
        await env.close()
        return last, late

    last, late = asyncio.run(scenario())
    assert (last.reward, late.reward, late.done, late.info) == (1.0, 0.0, True, last.info)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("broken", "ZeroDivisionError: inside"),
        ("out_of_range", r"score 2 is not a number in \[0, 1\]"),
        ("not_a_number", "score nan"),
        ("silent", "score None"),
        ("wordy", "score 'good'"),
        ("scoreless", "score None"),
    ],
)
def test_a_verifier_that_fails_fails_the_episode_and_never_scores_zero(function, message):
    with pytest.raises(EnvError, match=rf"verifier {__name__}:{function}: .*{message}"):
        steps_of(named(function), ["good", "good"])


def out_of_range(transcript):
    return 2


def not_a_number(transcript):
    return float("nan")


def silent(transcript):
    return None


def wordy(transcript):
    return "good"


def scoreless(transcript):
    return {"points": 1}


def test_a_verifier_that_hangs_fails_the_episode(monkeypatch):
    monkeypatch.setattr("envs.verifier.JUDGE_S", 0.05)
    with pytest.raises(EnvError, match="TimeoutError"):
        steps_of(named("hanging"), ["good", "good"])


async def hanging(transcript):
    await asyncio.sleep(3600)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"verifier": "no_such_module:f"}, r"env\.verifier='no_such_module:f': module 'no_such_module' cannot be"),
        ({"verifier": named("absent")}, "has no 'absent'"),
        ({"verifier": named("ESSAY")}, "is not a function"),
        ({"verifier": "judge"}, "no such verifier; give module:function"),
        ({"verifier": named("broken"), "verifier_weight": 1.5}, r"env\.verifier_weight=1\.5: must lie in \[0, 1\]"),
    ],
)
def test_a_wrong_verifier_is_refused_before_anything_plays(settings, message):
    with pytest.raises(ConfigError, match=message):
        registry.create("tinyguess", settings)


def test_an_installed_package_s_verifier_is_found_by_its_name(monkeypatch):
    point = EntryPoint("goodness", named("share_of_good"), "flwr_agent.verifiers")
    monkeypatch.setattr("envs.verifier.entry_points", lambda **asked: [point] if asked["name"] == "goodness" else [])
    assert steps_of("goodness", ["good", "good"])[-1].reward == 1.0


def test_the_verifier_and_its_weight_are_in_the_fingerprint():
    settings = [{}, {"verifier": named("broken")}, {"verifier": named("hit")}]
    settings.append(settings[-1] | {"verifier_weight": 0.5})
    assert len({registry.create("tinyguess", one).fingerprint() for one in settings}) == 4


def test_a_judge_is_sent_the_episode_and_its_score_is_paid():
    with judge(200, b'{"score": 0.75, "success": true}') as (url, received):
        last = steps_of(url, ["good", "bad"])[-1]
    assert (last.reward, last.info["success"]) == (0.75, True)
    [sent] = received
    assert sent["task"] == {"id": "train-0", "split": "train", "meta": {"category": "essay"}}
    assert [turn["action"] for turn in sent["turns"]] == ["good", "bad"]


@pytest.mark.parametrize(
    ("status", "body", "message"),
    [
        (500, b'{"score": 1.0}', "answers with status 500"),
        (302, b"", "answers with status 302"),
        (200, b"fine", "JSONDecodeError"),
        (200, b'{"score": NaN}', "score nan"),
        (200, b'"1.0"', "score '1.0'"),
    ],
)
def test_a_judge_that_fails_fails_the_episode(status, body, message):
    with judge(status, body) as (url, _), pytest.raises(EnvError, match=message):
        steps_of(url, ["good", "good"])


def test_a_judge_that_is_not_there_fails_the_episode():
    with pytest.raises(
        EnvError, match=r"^verifier http://127\.0\.0\.1:9/judge: ConnectionError: .*Connection refused$"
    ):
        steps_of("http://127.0.0.1:9/judge", ["good", "good"])


@pytest.mark.parametrize("url", ["http://", "https:///judge", "http://localhost:99999/judge", "ftp://localhost/judge"])
def test_an_address_that_is_none_is_refused_before_any_episode(url):
    with pytest.raises(ConfigError, match=rf"env\.verifier='{url}': give http://HOST:PORT"):
        registry.create("tinyguess", {"verifier": url})
