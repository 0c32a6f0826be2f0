import os

import pytest

from envs.harbor import reward
from flwr_agent.errors import EnvError


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"reward.txt": "1\n"}, 1.0),
        ({"reward.txt": " 0.25 "}, 0.25),
        ({"reward.txt": "0"}, 0.0),
        ({"reward.json": '{"reward": 0.5}'}, 0.5),
        ({"reward.json": '{"score": 1}'}, 1.0),
        ({"reward.json": '{"reward": 0.5, "style": 0}'}, 0.5),
        ({"reward.json": '{"reward": 0.5}', "reward.txt": "1"}, 0.5),
    ],
)
def test_the_table_is_read_before_the_single_number(tmp_path, files, expected):
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert reward.read(tmp_path) == expected


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("reward.txt", ""),
        ("reward.txt", "nan"),
        ("reward.txt", "inf"),
        ("reward.txt", "passed"),
        ("reward.txt", "1.5"),
        ("reward.txt", "-0.1"),
        ("reward.json", ""),
        ("reward.json", "1"),
        ("reward.json", "{}"),
        ("reward.json", "[1]"),
        ("reward.json", '{"reward": "high"}'),
        ("reward.json", '{"reward": true}'),
        ("reward.json", '{"reward": null}'),
        ("reward.json", '{"reward": NaN}'),
        ("reward.json", '{"reward": 1, "style": NaN}'),
        ("reward.json", '{"a": 1, "b": 1}'),
        ("reward.json", '{"reward": 1' + "0" * 400 + "}"),
        ("reward.json", "[" * 90_000),
    ],
)
def test_what_is_no_reward_is_a_failed_episode_not_a_zero(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    with pytest.raises(EnvError, match="harbor: "):
        reward.read(tmp_path)


def test_no_file_a_link_a_pipe_a_folder_and_bytes_are_no_reward(tmp_path):
    with pytest.raises(EnvError, match=r"neither reward\.json nor reward\.txt"):
        reward.read(tmp_path)
    place = tmp_path / "reward.txt"
    (tmp_path / "elsewhere").write_text("1")
    place.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(EnvError, match="not a plain file"):
        reward.read(tmp_path)
    place.unlink()
    os.mkfifo(place)
    with pytest.raises(EnvError, match="not a plain file"):
        reward.read(tmp_path)
    place.unlink()
    place.mkdir()
    with pytest.raises(EnvError, match="not a plain file"):
        reward.read(tmp_path)
    place.rmdir()
    place.write_bytes(b"\xff\xfe1")
    with pytest.raises(EnvError, match="not text"):
        reward.read(tmp_path)
