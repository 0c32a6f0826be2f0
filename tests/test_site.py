"""A site's own say, as far as it is read and obeyed before anything works."""

import pytest
from fakes import config

from flwr_agent import site
from flwr_agent.errors import ConfigError, DataError, ProtocolError

TEXT = """
use:
  env.data_path: /data/hospital
  model.path: /models/policy
  trainer.micro_rows: 2
  worker: {mode: process, idle_timeout_s: 60}
limits:
  federation.epochs_per_round: 3
  algorithm.group_size: 8
only:
  env.name: webshop, minihouse
"""


def written(folder, text):
    path = folder / "site.yaml"
    path.write_text(text)
    return {"partition-id": 3, "site": str(path)}


def small(**keys):
    return config(federation__epochs_per_round=3, **keys)


def test_a_site_uses_its_own_data_model_and_machine_and_the_rest_is_the_server_s(tmp_path):
    asked = small(trainer__lr=0.5)
    own = site.read(written(tmp_path, TEXT)).to_own(asked)
    changed = {key for key, value in own.flat().items() if value != asked.flat()[key]}
    assert changed == {"env.data_path", "model.path", "trainer.micro_rows", "worker.mode", "worker.idle_timeout_s"}
    assert own.env.data_path == "/data/hospital"


def test_a_node_without_a_site_accepts_everything(tmp_path):
    assert site.read({"partition-id": 0}).to_own(config()) == config()


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        ({"federation__epochs_per_round": 4}, r"^this site refuses federation.epochs_per_round=4: its limit is 3$"),
        ({"algorithm__group_size": 9}, r"refuses algorithm.group_size=9: its limit is 8"),
        ({"env__name": "tinyguess"}, r"refuses env.name=tinyguess: it accepts webshop, minihouse"),
    ],
)
def test_what_a_site_does_not_do_is_refused_in_one_line(tmp_path, keys, reason):
    with pytest.raises(ProtocolError, match=reason):
        site.read(written(tmp_path, TEXT)).to_own(config(**{"federation__epochs_per_round": 3} | keys))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("use:\n  trainer.lr: 1.0", r"site.yaml:2: trainer.lr: is the federation's to decide"),
        ("use:\n  federation.rounds: 3", r"federation.rounds: is the federation's to decide"),
        ("limits:\n  env.name: 3", r"env.name: a limit is a number, of a key that is one"),
        ("limits:\n  trainer.lr: high", r"trainer.lr: a limit is a number"),
        ("only:\n  trainer.lr: 3", r"trainer.lr: is no word; write it under limits"),
        ("used:\n  model.path: x", r"used.model.path: write use, limits, only"),
        ("use:\n  model.paht: x", r"use.model.paht: write use, limits, only, and under them keys of a run"),
    ],
)
def test_a_file_that_a_site_has_no_say_in_is_refused_by_its_line(tmp_path, text, reason):
    with pytest.raises(DataError, match=reason):
        site.read(written(tmp_path, text))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("use:\n  rollout.engine: bogus", r"site.yaml:2: rollout.engine='bogus': no such choice"),
        ("use:\n  worker.idle_timeout_s: -1", r"site.yaml:2: worker.idle_timeout_s=-1.0: must be at least"),
        ("use:\n  model.path: [a, b]", r"model.path=.*must be of type str"),
        ("use:\n  worker.torch_threads: 7", r"worker.torch_threads: is the federation's to decide"),
        ("limits:\n  trainer.lr: 1e999", r"trainer.lr: a limit is a number"),
        ("only:\n  algorithm.name: grpo, pppo", r"site.yaml:2: algorithm.name='pppo': no such choice"),
    ],
)
def test_a_value_that_no_run_could_have_is_found_when_the_file_is_read(tmp_path, text, reason):
    with pytest.raises((ConfigError, DataError), match=reason):
        site.read(written(tmp_path, text))


def test_words_may_stand_as_a_list(tmp_path):
    found = site.read(written(tmp_path, "only: {env.name: [webshop, minihouse]}"))
    assert found.only == {"env.name": ("webshop", "minihouse")}


@pytest.mark.parametrize(
    ("own", "reason"),
    [
        ({"privacy.mod": "localdp"}, r"privacy.mod='localdp': is no setting of a site, .*allowed: .*privacy.mods"),
        ({"privacy_mods": "localdp"}, r"is no setting of a site"),
        ({"Privacy.mods": "localdp"}, r"is no setting of a site"),
        ({"privacy.noise_multiplier": 1.0}, r"is no setting of a site"),
        ({"env.data_path": "/data"}, r"is no setting of a site, .* stand in the file of site=FILE"),
        ({"privacy.local_epsilon": "lots"}, r"privacy.local_epsilon='lots': must be of type float"),
        ({"privacy.mods": "localdb"}, r"did you mean 'localdp'"),
        ({"privacy.mods": "localdp,localdp"}, r"applies localdp twice"),
        ({"privacy.mods": ""}, r"no such mod"),
        ({"privacy.mods": True}, r"must be of type str"),
    ],
)
def test_protection_that_a_site_would_not_have_is_refused(own, reason):
    with pytest.raises(ConfigError, match=reason):
        site.privacy({"partition-id": 0, **own})


def test_the_protection_that_a_site_has_is_what_it_says():
    own = {"privacy.mods": "localdp, fixedclipping", "privacy.clip": 1}
    assert site.privacy({"partition-id": 0, "site": "/x.yaml", "room": 4, **own}) == own


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"site='.*nowhere.yaml': the node_config names no file"):
        site.read({"site": str(tmp_path / "nowhere.yaml")})


def test_only_sites_with_their_own_tasks_may_leave_their_number_open():
    assert config(federation__total_clients=0, partition__strategy="site").federation.total_clients == 0
    for keys in ({}, {"partition__strategy": "site", "federation__mode": "local"}):
        with pytest.raises(ConfigError, match="only a federation of sites with their own tasks"):
            config(federation__total_clients=0, **keys)
