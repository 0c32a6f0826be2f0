"""Settings of a third party's own code: the same mapping however it is written, from the key to the code that takes it."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

import strategies
from envs.base import Shard, Task
from flwr_agent import presets, settings
from flwr_agent.cli import overrides
from flwr_agent.cli.run import plan
from flwr_agent.config import resolve
from flwr_agent.errors import ConfigError
from flwr_agent.world import to_adapter, to_shard

OWN = (f"env.name={__name__}:Word", f"partition.strategy={__name__}:every", "evaluation.tasks=4")


class Word:
    """Say the word."""

    def __init__(self, *, word: str, patience: int = 3, sizes=(), name: str = "", data_path: str = "none"):
        self.settings = (word, patience, sizes, name, data_path)

    def tasks(self, split):
        return [Task(f"{split}-{n}", split, {"category": "word"}) for n in range(24)]

    def reset(self, task, seed):
        return f"{self.settings}"

    def step(self, action):
        return "end", 1.0, True, False, {}


def every(tasks, client_id, num_clients, *, seed, stride, offset=0):
    return Shard(client_id, tuple(task.id for task in tasks[offset + client_id :: stride]))


def given_to(config):
    return to_adapter(config)._world.settings


def configured(*arguments: str, preset: str = ""):
    return presets.load({"preset": preset} | overrides.parse(arguments))


FIVE = (
    ["env.settings.word=sky", "env.settings.patience=5"],
    ["env.settings={word: sky, patience: 5}"],
    ['env.settings={"word": "sky", "patience": 5}'],
    ["env.settings={word: sea, patience: 5}", "env.settings.word=sky"],
    ["env.settings.word=", "env.settings.word=sky", "env.settings.patience=5"],
)


@pytest.mark.parametrize("arguments", FIVE)
def test_a_mapping_is_written_in_several_ways_and_is_one(arguments):
    config = configured(f"env.name={__name__}:Word", *arguments)
    assert config.env.settings == '{"patience": 5, "word": "sky"}'
    assert given_to(config) == ("sky", 5, (), "", "none")
    assert resolve(config.flat()) == config


def test_a_preset_gives_them_and_an_override_changes_one_or_drops_all(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(f"env:\n  name: {__name__}:Word\n  settings:\n    word: sky\n    sizes: [1, 2.5]\n    name: me\n")
    assert given_to(configured(preset=str(path))) == ("sky", 3, [1, 2.5], "me", "none")
    assert given_to(configured("env.settings.word=sea", preset=str(path)))[:3] == ("sea", 3, [1, 2.5])
    assert configured("env.settings=none", preset=str(path)).env.settings == "none"


def test_a_setting_may_be_a_mapping_itself(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(f"env: {{name: '{__name__}:Word', settings: {{word: x, sizes: {{a: {{b: 1}}}}}}}}\n")
    assert given_to(configured(preset=str(path)))[2] == {"a": {"b": 1}}


def test_keys_of_the_configuration_reach_those_that_take_them_and_choices_never_do():
    config = configured(*OWN, "env.settings.word=x", "partition.settings.stride=2", "env.data_path=here")
    assert given_to(config) == ("x", 3, (), "", "here")


def test_a_strategy_of_ones_own_takes_its_settings():
    config = configured(*OWN, "env.settings.word=x", "partition.settings={stride: 6, offset: 1}")
    tasks = to_adapter(config).tasks("train")
    assert to_shard(config, tasks, 1).task_ids == ("train-2", "train-8", "train-14", "train-20")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], r"env\.settings\.word='': environment '.*' needs a value"),
        (["env.settings.wrod=x"], r"env\.settings\.wrod='x': .* no such setting .allowed: name, patience, sizes, word"),
        (["env.settings.data_path=x"], r"env\.settings\.data_path='x': write env\.data_path instead"),
        (["env.settings.search_return_n=3"], r"env\.settings\.search_return_n=3: .* takes no such setting"),
        (["env.settings=5"], r"env\.settings=5: must be a mapping of names"),
        (["env.settings={1: 2}"], r"env\.settings=.*must be a mapping of names"),
        (["env.settings={a"], r"env\.settings='\{a': must be a mapping"),
        (["env.settings.word=x"], r"partition\.settings\.stride='': strategy .* needs a value"),
        (
            ["env.settings.word=x", "partition.settings.size=2"],
            r"partition\.settings\.size=2: .* takes no such setting",
        ),
    ],
)
def test_what_does_not_fit_is_refused_by_its_key_before_any_client_starts(arguments, message, tmp_path):
    with pytest.raises(ConfigError, match=message):
        plan("", [*OWN, *arguments], base=tmp_path, load_strategy=strategies.load)


def test_what_an_environment_of_the_package_takes_are_its_keys_alone(tmp_path):
    with pytest.raises(ConfigError, match=r"env\.settings\.x=1: tinyguess takes no such setting"):
        plan("", ["env.name=tinyguess", "env.settings.x=1"], base=tmp_path, load_strategy=strategies.load)


def test_they_change_what_a_run_is():
    one, two = (configured(f"env.name={__name__}:Word", f"env.settings.word={word}") for word in ("sky", "sea"))
    assert one.fingerprint() != two.fingerprint()


def test_files_that_exist_become_absolute(tmp_path):
    (tmp_path / "words.txt").touch()
    found = overrides.absolute({"env.settings": '{"word_file": "words.txt", "word": "words.txt"}'}, tmp_path)
    assert json.loads(found["env.settings"]) == {"word_file": str(tmp_path / "words.txt"), "word": "words.txt"}


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(st.from_regex(r"[a-z_][a-z0-9_]{0,6}", fullmatch=True), VALUES, max_size=4))
def test_a_mapping_survives_the_way_through_one_scalar(mapping):
    text = resolve({"env.settings": mapping}).env.settings
    assert settings.to_mapping(text) == mapping
    assert settings.folded(settings.expanded({"env.settings": text}, json.loads)).get("env.settings", "none") == text
