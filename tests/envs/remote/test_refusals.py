"""A wrong address, token file or environment is one line that names it, and nothing is served."""

import asyncio

import pytest

from envs import registry
from envs.base import Task
from envs.remote import tokens
from envs.remote.leases import Leases
from envs.remote.server import serving
from envs.tinyguess import TinyGuess
from flwr_agent.errors import ConfigError, DataError
from tests.envs.remote.hosting import TOKEN, judge


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("none", r"env\.url='none': give http://HOST:PORT"),
        ("ftp://host", r"env\.url='ftp://host'"),
        ("http://elsewhere.example:1", r"is not on this machine; give a file with its token"),
        ("http://127.0.0.1:1", r"env\.url='http://127\.0\.0\.1:1': .* cannot be reached: .*refused; start one"),
        ("http://127.0.0.1:99999", r"env\.url='http://127\.0\.0\.1:99999': give http://HOST:PORT"),
        ("http://127.0.0.1:abc", r"env\.url='http://127\.0\.0\.1:abc': give http://HOST:PORT"),
        ("http://[::1", r"env\.url='http://\[::1': give http://HOST:PORT"),
        (",", r"env\.url='': give http://HOST:PORT"),
    ],
)
def test_a_wrong_address_or_token_file_is_refused_by_name(monkeypatch, tmp_path, url, message):
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(ConfigError, match=message):
        registry.create("remote", {"url": url})


@pytest.mark.parametrize("answer", [b"<html>", b"[1]", b'{"protocol": 1}', b"[" * 100_000])
def test_a_server_of_something_else_is_named(tmp_path, answer):
    with judge(200, answer) as (url, _), pytest.raises(ConfigError, match=r"env\.url='.*': is no server of `python -m"):
        registry.create("remote", {"url": url, "token_file": token_in(tmp_path)})


def token_in(folder):
    (folder / "token").write_text(TOKEN)
    return str(folder / "token")


def test_a_home_that_cannot_keep_the_token_is_named(monkeypatch):
    monkeypatch.setenv("HOME", "/dev/null")
    with pytest.raises(ConfigError, match=r"HOME='/dev/null': cannot keep .*/tokens/1 .*\(Not a directory\)"):
        tokens.shown(TOKEN, 1).__enter__()


def test_a_token_file_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(
        ConfigError, match=r"env\.token_file='.*': cannot be read \(Is a directory\); give the file that"
    ):
        registry.create("remote", {"url": "http://127.0.0.1:1", "token_file": str(tmp_path)})


class Damaged(TinyGuess):
    """An environment whose data cannot be read, or that has other splits than ours."""

    error: Exception = DataError("items.json", "[3].price", "must be a number")

    def tasks(self, split):
        raise self.error


class Bare(TinyGuess):
    meta: dict[str, float] | None = None

    def tasks(self, split):
        return () if self.meta is None else (Task(f"{split}-0", split, self.meta),)


def test_an_environment_without_tasks_or_with_such_as_cannot_be_sent_is_not_served(monkeypatch):
    with pytest.raises(ConfigError, match=r"env\.name='tinyguess': has no task in train, val, demo"):
        asyncio.run(serve(Bare()))
    monkeypatch.setattr(Bare, "meta", {"category": float("nan")})
    with pytest.raises(ConfigError, match="cannot be served: ValueError: Out of range float values"):
        asyncio.run(serve(Bare()))


async def serve(adapter):
    async with serving(lambda style, variant: adapter, Leases(slots=1), host="127.0.0.1", port=0, token=TOKEN):
        pass


@pytest.mark.parametrize("error", [Damaged.error, ConfigError("split", "train", "no such split"), KeyError("train")])
def test_an_environment_that_cannot_list_its_tasks_is_not_served(monkeypatch, error):
    monkeypatch.setattr(Damaged, "error", error)
    with pytest.raises(
        (DataError, ConfigError), match=r"items\.json|no such split|cannot be served: KeyError: 'train'"
    ):
        asyncio.run(serve(Damaged()))
