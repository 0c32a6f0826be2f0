from pathlib import Path

import pytest

from flwr_agent.cli.where import to_where
from flwr_agent.errors import ConfigError
from flwr_agent.hosts.launched import DEPLOYMENT, SIMULATION, SUPERLINK


def where(**given):
    return to_where(
        **{
            "deployment": False,
            "in_memory": False,
            "superlink": "",
            "root_certificates": None,
            "federation": "",
            **given,
        }
    )


def test_a_run_is_simulated_unless_it_is_told_otherwise(tmp_path: Path):
    root = tmp_path / "ca.crt"
    root.touch()
    assert where().kind == SIMULATION
    assert where(deployment=True).kind == DEPLOYMENT
    assert where(deployment=True, in_memory=True).in_memory
    there = where(superlink="host:8000", root_certificates=root, federation="@a/b")
    assert (there.kind, there.superlink, there.root_certificates) == (SUPERLINK, "host:8000", str(root))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"federation": "@a/b"}, "--federation='@a/b': belongs to --superlink"),
        ({"root_certificates": Path("/ca.crt")}, "--root-certificates='/ca.crt': belongs to --superlink"),
        ({"superlink": "host:1", "deployment": True}, "choose one"),
        ({"in_memory": True}, "^--in-memory: .*--deployment"),
        ({"superlink": "host:1", "in_memory": True}, "--in-memory.*--deployment"),
        ({"superlink": "host:1", "root_certificates": Path("/no/ca.crt")}, "no such file"),
        ({"superlink": "name", "root_certificates": Path("/dev/null")}, "no such file"),
    ],
)
def test_options_that_contradict_each_other_are_refused(given: dict, message: str):
    with pytest.raises(ConfigError, match=message):
        where(**given)


def test_a_named_connection_has_its_own_certificates(tmp_path: Path):
    (tmp_path / "ca.crt").touch()
    with pytest.raises(ConfigError, match="connection 'mine' has its own"):
        where(superlink="mine", root_certificates=tmp_path / "ca.crt")
