from pathlib import Path

import pytest

from flwr_agent import faults
from flwr_agent.config import resolve
from flwr_agent.errors import ConfigError, DataError
from flwr_agent.faults import Fault, KilledError

SCHEDULE = "- {client: 1, killed_in: 2, back_in: 4}\n- {client: 0, killed_in: 3}\n"


def written(folder: Path, text: str) -> tuple[Fault, ...]:
    file = folder / "faults.yaml"
    file.write_text(text, encoding="utf-8")
    return faults.scheduled(resolve({"federation.faults": str(file)}))


def test_without_a_schedule_nobody_is_killed():
    assert faults.scheduled(resolve({})) == ()
    faults.check((), round_=1, client=0)


def test_a_killed_client_is_away_until_it_is_back(tmp_path: Path):
    schedule = written(tmp_path, SCHEDULE)
    away, said = set(), []
    for round_ in range(1, 6):
        for client in (0, 1):
            try:
                faults.check(schedule, round_=round_, client=client)
            except KilledError as error:
                away.add((round_, client))
                said.append(str(error))
    assert away == {(2, 1), (3, 1), (3, 0), (4, 0), (5, 0)}
    assert said[0] == "client 1 is killed in round 2 by federation.faults"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("client: 1", "must be a list of faults"),
        ("- {client: 1", "YAML"),
        ("- {client: 1}", r"\[0\]: must have client, killed_in"),
        ("- {client: 1, killed_in: 2, until: 3}", r"\[0\]: must have client, killed_in"),
        ("- {client: 1, killed_in: two}", r"\[0\]\.killed_in: must be a whole number, not 'two'"),
        ("- {client: 2, killed_in: 2}", r"\[0\]\.client: clients are 0 to 1"),
        ("- {client: 1, killed_in: 9}", r"\[0\]\.killed_in: rounds are 1 to 8"),
        ("- {client: 1, killed_in: 2}\n- {client: 1, killed_in: 4}", r"\[1\]: client 1 is away then by another entry"),
        ("- {client: 1, killed_in: 3}\n- {client: 1, killed_in: 2, back_in: 4}", r"\[1\]: client 1 is away then"),
        ("- {client: 1, killed_in: 2, back_in: 2}", r"\[0\]: killed_in must be a round, and back_in a later one"),
    ],
)
def test_a_malformed_schedule_is_refused_by_file_and_field(tmp_path: Path, text: str, message: str):
    with pytest.raises(DataError, match=message):
        written(tmp_path, text)


def test_a_schedule_that_is_not_there_is_refused_by_its_key():
    with pytest.raises(ConfigError, match=r"federation\.faults='/no/faults.yaml': no such file"):
        faults.scheduled(resolve({"federation.faults": "/no/faults.yaml"}))


def test_a_client_may_be_killed_again_once_it_is_back(tmp_path: Path):
    again = "- {client: 1, killed_in: 4}\n- {client: 1, killed_in: 2, back_in: 4}\n- {client: 0, killed_in: 2}\n"
    assert len(written(tmp_path, again)) == 3


def test_a_schedule_of_sites_that_are_not_counted_is_held_to_those_of_a_round(tmp_path: Path):
    file = tmp_path / "faults.yaml"
    file.write_text("- {client: 1, killed_in: 2}")
    keys = {"federation.total_clients": 0, "partition.strategy": "site", "federation.faults": str(file)}
    assert len(faults.scheduled(resolve(keys))) == 1
