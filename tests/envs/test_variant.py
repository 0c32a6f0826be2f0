"""Worlds of one's own: a function changes the standard environment, for one client and nobody else."""

from importlib.metadata import EntryPoint

import pytest

from envs.base import Shard, Variant
from envs.check import check
from envs.registry import create
from envs.wrapper import Wrapper
from flwr_agent import lens
from flwr_agent.config import resolve
from flwr_agent.errors import ConfigError
from flwr_agent.paths import ROOT
from flwr_agent.world import to_adapter, to_shard, to_world

SHOP = {"env.name": "webshop", "partition.strategy": "my_worlds:shelves", "federation.total_clients": 2}


@pytest.fixture
def page(tmp_path, monkeypatch):
    """The example of the page, as the module that it says it is."""
    text = (ROOT / "docs/partitions.md").read_text(encoding="utf-8")
    source = text.partition("# my_worlds.py\n")[2].partition("```")[0]
    assert len(source.splitlines()) < 40
    (tmp_path / "my_worlds.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)


def hits(adapter):
    session = adapter.session(adapter.tasks("train")[0])
    session.act("search[soft jacket]")
    return session.hits


def test_the_documented_world_is_each_client_s_own_and_the_standard_one_stays(page):
    config = resolve(SHOP)
    standard = to_adapter(config)
    tasks = standard.tasks("train")
    worlds = [to_world(config, to_shard(config, tasks, client)) for client in (0, 1)]
    ranked = hits(create("webshop", {"search_return_n": 100}))
    assert [hits(world.inner) for world in worlds] == [ranked[::2], ranked[1::2]]
    assert hits(standard) == ranked[:50]
    assert len({adapter.fingerprint() for adapter in (standard, *worlds)}) == 3
    assert worlds[0].fingerprint() == to_world(config, to_shard(config, tasks, 0)).fingerprint()
    assert check(worlds[0], episodes=2, splits=("train",)) == []


def test_the_lens_plays_and_compares_worlds_of_ones_own(page):
    found = lens.look(resolve(SHOP), play_tasks=3)
    assert [(world["name"], world["side"]) for world in found.worlds] == [
        ("my_worlds:half_shelf", 0),
        ("my_worlds:half_shelf", 1),
    ]
    assert [one.num_tasks for one in found.winnable.values()] == [3, 3]
    assert found.world_disagreement["0-1"].rate > 0


class Deaf(Wrapper):
    def parse_action(self, model_text):
        return "", False


def deaf(adapter, params):
    return Deaf(adapter)


def half(transcript):
    return 0.5


def test_any_environment_can_be_varied_with_a_verifier_beside_it():
    adapter = create("tinyguess", {"verifier": f"{__name__}:half"}, variant=Variant(f"{__name__}:deaf"))
    assert adapter.parse_action("25") == ("", False)
    assert create("tinyguess", {}).parse_action("25") != ("", False)
    assert adapter.fingerprint() != create("tinyguess", {}, variant=Variant(f"{__name__}:deaf")).fingerprint()


def test_an_installed_package_s_world_is_found_by_its_name(monkeypatch):
    point = EntryPoint("deafness", f"{__name__}:deaf", "flwr_agent.variants")
    monkeypatch.setattr("envs.variant.entry_points", lambda **asked: [point] if asked["name"] == "deafness" else [])
    assert create("tinyguess", {}, variant=Variant("deafness")).parse_action("25") == ("", False)


def nothing(adapter, params):
    return None


def broken(adapter, params):
    return params["absent"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nothing", "gives a NoneType, not an adapter"),
        ("broken", r"cannot make its world: KeyError: 'absent' \(.*test_variant\.py:\d+\)"),
        ("absent", "has no 'absent'"),
    ],
)
def test_a_world_that_cannot_be_made_is_refused_by_name(name, message):
    with pytest.raises(ConfigError, match=rf"^partition\.strategy='{__name__}:{name}': .*{message}"):
        create("tinyguess", {}, variant=Variant(f"{__name__}:{name}"))


def test_a_shard_s_own_world_goes_through_the_configuration():
    def check_shard(tasks):
        return Shard(0, (tasks[0].id,), Variant(f"{__name__}:deaf"))

    config = resolve({"env.name": "tinyguess"})
    world = to_world(config, check_shard(to_adapter(config).tasks("train")))
    assert world.parse_action("25") == ("", False)
