from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flwr_agent.cli import overrides
from flwr_agent.config import KEYS, resolve
from flwr_agent.errors import ConfigError


@given(st.sampled_from(sorted(KEYS)))
def test_every_default_survives_being_written_on_the_command_line(key: str):
    default = KEYS[key].default
    text = str(default).lower() if isinstance(default, bool) else str(default)
    assert resolve(overrides.parse([f"{key}={text}"])) == resolve()


def test_words_that_look_like_numbers_stay_words_where_a_word_is_wanted():
    assert overrides.parse(["env.data_path=007"]) == {"env.data_path": "007"}


@pytest.mark.parametrize("text", ["1.5", "two", "true", "[1]", "["])
def test_a_value_of_another_type_is_refused_by_key(text: str):
    with pytest.raises(ConfigError, match=r"^federation.rounds=.*must be of type int"):
        resolve(overrides.parse([f"federation.rounds={text}"]))


def test_an_empty_value_is_unset():
    assert resolve(overrides.parse(["federation.rounds="])) == resolve()


@pytest.mark.parametrize("argument", ["demo", "=5", "--seed"])
def test_an_argument_without_key_or_value_is_refused(argument: str):
    with pytest.raises(ConfigError, match="write key=value"):
        overrides.parse([argument])


def test_existing_relative_paths_become_absolute_and_other_words_stay(tmp_path: Path):
    (tmp_path / "model").mkdir()
    values = {"model.path": "model", "env.data_path": "none", "env.name": "model", "seed": 3}
    assert overrides.absolute(values, tmp_path) == values | {"model.path": str(tmp_path / "model")}
