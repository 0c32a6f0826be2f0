from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flwr_agent import presets
from flwr_agent.config import KEYS, resolve
from flwr_agent.errors import ConfigError, DataError


@pytest.fixture
def preset(tmp_path: Path):
    def write(text: str) -> str:
        path = tmp_path / "mine.yaml"
        path.write_text(text, encoding="utf-8")
        return str(path)

    return write


@pytest.mark.parametrize("name", presets.names())
def test_every_preset_loads_and_only_names_known_keys(name: str):
    config = presets.load({"preset": name})
    values = presets.parse(presets.CONF / f"{name}.yaml")
    assert values
    assert all(config.flat()[key] == value for key, (value, _) in values.items())


def test_demo_is_the_defaults():
    demo, default = presets.load({"preset": "demo"}), presets.load({})
    assert replace(demo, output_dir="") == replace(default, output_dir="")


@pytest.mark.parametrize(("algorithm", "group"), [("grpo", 8), ("ppo", 1)])
def test_paper_presets_hold_the_published_recipe(algorithm: str, group: int):
    """Both play 64 episodes a step and update on 64 rows."""
    config = presets.load({"preset": f"paper-webshop-{algorithm}"})
    fed, trainer, knobs = config.federation, config.trainer, config.algorithm
    assert (knobs.name, knobs.group_size) == (algorithm, group)
    assert (fed.total_clients, fed.clients_per_round, fed.rounds, fed.epochs_per_round) == (100, 2, 70, 3)
    assert (trainer.tasks_per_step * group, trainer.minibatch_rows, trainer.lr) == (64, 64, 1e-6)
    assert (knobs.kl_coef, knobs.entropy_coef, knobs.clip, knobs.dual_clip) == (0.01, 0.001, 0.2, 3.0)
    assert config.rollout.max_prompt_tokens + config.rollout.max_new_tokens == 4608


def test_ppo_plays_as_many_episodes_a_step_as_grpo():
    ppo, grpo = presets.load({"preset": "ppo"}), presets.load({})
    assert ppo.trainer.tasks_per_step == grpo.trainer.tasks_per_step * grpo.algorithm.group_size == 64
    assert ppo.algorithm.group_size == 1


def test_overrides_beat_the_preset_even_when_they_equal_a_default():
    default = resolve().federation.rounds
    assert presets.load({"preset": "tinyguess"}).federation.rounds != default
    assert presets.load({"preset": "tinyguess", "federation.rounds": default}).federation.rounds == default


@given(st.sets(st.sampled_from(sorted(KEYS))))
def test_empty_strings_change_nothing(keys: set[str]):
    assert presets.load(dict.fromkeys(keys, "") | {"preset": ""}) == presets.load({})


def test_no_preset_can_be_said_in_words():
    assert presets.load({"preset": "none"}) == presets.load({})


def test_nested_and_dotted_keys_are_the_same(preset):
    nested = presets.load({"preset": preset("federation:\n  rounds: 3\n")})
    assert nested == presets.load({"preset": preset("federation.rounds: 3\n")})


def test_numbers_in_scientific_notation_are_numbers_and_off_is_a_word(preset):
    config = presets.load({"preset": preset("trainer.lr: 1e-6\nevaluation.where: off\nfresh: true\n")})
    assert (config.trainer.lr, config.evaluation.where, config.fresh) == (1e-6, "off", True)


def test_unknown_preset_names_the_nearest():
    with pytest.raises(ConfigError, match="did you mean 'tinyguess'"):
        presets.load({"preset": "tinygues"})


def test_missing_preset_file_is_refused(tmp_path: Path):
    with pytest.raises(ConfigError, match=r"preset=.*no such file"):
        presets.load({"preset": str(tmp_path / "absent.yaml")})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("seed: 1\nenv: [a\n", r"mine.yaml:3: YAML: "),
        ("- seed\n", r"mine.yaml:1: YAML: must be a mapping"),
        ("seed: 1\nenv.name: tinyguess\nenv:\n  name: webshop\n", r"mine.yaml:4: env.name: already set in line 2"),
        ("seed: 1\nseed: 1\n", r"mine.yaml:2: seed: already set in line 1"),
        ("env.name:\n", r"mine.yaml:1: env.name: has no value"),
        ("\tseed: 1\n", r"mine.yaml:1: YAML: "),
    ],
)
def test_malformed_yaml_names_file_line_and_key(preset, text: str, message: str):
    with pytest.raises(DataError, match=message):
        presets.load({"preset": preset(text)})


def test_undecodable_preset_names_the_file(tmp_path: Path):
    path = tmp_path / "mine.yaml"
    path.write_bytes(b"seed: \xff\n")
    with pytest.raises(DataError, match=r"mine.yaml: YAML: cannot be read"):
        presets.load({"preset": str(path)})


def test_bad_value_of_a_preset_names_file_and_line(preset):
    with pytest.raises(
        ConfigError, match=r"^mine.yaml:2: federation.ronds=3: unknown key; did you mean federation.rounds"
    ):
        presets.load({"preset": preset("seed: 1\nfederation.ronds: 3\n")})


def test_bad_override_is_not_blamed_on_the_preset(preset):
    with pytest.raises(ConfigError, match=r"^federation.rounds=0: must be at least 1"):
        presets.load({"preset": preset("federation.rounds: 3\n"), "federation.rounds": 0})


def test_auto_output_folder_names_preset_and_seed(tmp_path: Path):
    config = presets.load({"preset": "tinyguess", "seed": 7}, base=tmp_path)
    assert config.output_dir == str(tmp_path / "runs" / "tinyguess-seed7")
    assert Path(presets.load({}).output_dir) == Path.home() / "flwr_agent_runs" / "default-seed42"


def test_relative_output_folder_needs_a_base(tmp_path: Path):
    assert presets.load({"output_dir": "a"}, base=tmp_path).output_dir == str(tmp_path / "a")
    with pytest.raises(ConfigError, match="must be an absolute path"):
        presets.load({"output_dir": "a"})
