"""The tiny policy: the same files from the same recipe, made once, of demonstrations alone."""

import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from fakes import config
from transformers import AutoModelForCausalLM, AutoTokenizer
from worlds import Parrot

from envs.base import Task
from envs.registry import create
from envs.tinyguess import TinyGuess
from flwr_agent.config import RunConfig
from flwr_agent.errors import ConfigError
from flwr_agent.paths import ROOT
from flwr_agent.rl import tiny
from flwr_agent.rl.chat import Chat

RECIPE = tiny.Recipe(hidden_size=16, num_layers=1, num_heads=1, num_demos=600, num_steps=3, batch_rows=8, num_threads=1)
FILES = {"model.safetensors", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "config.json"}


def made(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tiny") / "policy"
    tiny.build(TinyGuess(style="compact"), path, RECIPE, history=2)
    return path


def test_another_process_makes_the_same_files(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    code = (
        "from pathlib import Path; import torch; torch.set_num_threads(3); torch.rand(7)\n"
        "from envs.tinyguess import TinyGuess; from flwr_agent.rl.tiny import Recipe, build\n"
        f"build(TinyGuess(style='compact'), Path({str(tmp_path / 'again')!r}), {RECIPE!r}, history=2)"
    )
    monkeypatch.setenv("PYTHONHASHSEED", "1")
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
    assert made(tmp_path / "again") == made(folder)
    assert made(folder).keys() >= FILES


def test_making_it_leaves_the_global_generator_and_the_threads_alone(tmp_path: Path):
    before = torch.get_rng_state(), torch.get_num_threads()
    tiny.build(TinyGuess(style="compact"), tmp_path / "policy", replace(RECIPE, num_demos=20, num_threads=2), history=2)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert torch.get_num_threads() == before[1]


class Misleading(TinyGuess):
    """Wrong solutions of everything but the demonstrations."""

    def oracle(self, task: Task) -> list[str]:
        return super().oracle(task) if task.split == "demo" else ["1", "2"]


def test_only_demonstrations_are_imitated(folder: Path, tmp_path: Path):
    tiny.build(Misleading(style="compact"), tmp_path / "policy", RECIPE, history=2)
    assert made(tmp_path / "policy") == made(folder)


def test_the_folder_is_a_model_like_any_other(folder: Path):
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    chat = Chat(tokenizer)
    assert model.config.vocab_size == len(tokenizer)
    assert chat.eos_ids == {model.config.eos_token_id}
    assert chat.pad_id == model.config.pad_token_id
    assert "<|im_start|>" in tokenizer.chat_template
    (prompt,) = chat.prompts(["task : guess"])
    assert tokenizer.unk_token_id not in prompt
    assert torch.isfinite(model(torch.tensor([prompt])).logits).all()


TEXT = "Soft jacket, 1080p; size_x 40.5 qwzk!"


@pytest.mark.parametrize("path", ["made", "loaded"])
def test_words_are_tokens_the_unknown_is_spelled_and_numbers_are_pairs_of_digits(path: str, tmp_path: Path):
    tokenizer = tiny.to_tokenizer(["soft jacket 10 80 p size _ x 40 . 5 ; , !"])
    if path == "loaded":
        tokenizer.save_pretrained(tmp_path)
        (tmp_path / "config.json").write_text('{"model_type": "llama"}')
        tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    found = tokenizer(TEXT, add_special_tokens=False)["input_ids"]
    words = [
        "soft",
        "jacket",
        ",",
        "10",
        "80",
        "p",
        ";",
        "size",
        "_",
        "x",
        "40",
        ".",
        "5",
        "q",
        "##w",
        "##z",
        "##k",
        "!",
    ]
    assert tokenizer.convert_ids_to_tokens(found) == words
    said = Chat(tokenizer).text(found)
    assert said == " ".join(words).replace(" ##", "")
    assert tokenizer(said, add_special_tokens=False)["input_ids"] == found
    assert tokenizer.convert_ids_to_tokens(tokenizer("é", add_special_tokens=False)["input_ids"]) == ["<unk>"]


@pytest.mark.parametrize("name", ["tinyguess", "minihouse", "webshop"])
def test_what_an_expert_says_survives_the_tokenizer(name: str):
    world = create(name, {}, style="compact")
    chat = Chat(tiny.to_tokenizer([]))
    for task in world.tasks("demo")[:60]:
        for answer in world.oracle(task) or ():
            spelled = chat.tokenizer(f"{answer}<|im_end|>", add_special_tokens=False)["input_ids"]
            assert spelled[-1] in chat.eos_ids
            assert world.parse_action(chat.text(spelled)) == world.parse_action(answer)


def test_batches_hold_every_row_once_before_any_comes_again():
    recipe = tiny.Recipe(num_steps=10, batch_rows=4)
    lengths = [3, 9, 1, 1, 7, 5, 9, 2, 6, 4]
    found = list(tiny.like_length_batches(lengths, recipe))
    assert found == list(tiny.like_length_batches(lengths, recipe))
    assert len(found) == 10
    for at in range(0, 9, 3):
        assert sorted(row for batch in found[at : at + 3] for row in batch) == list(range(10))
        ordered = sorted(found[at : at + 3], key=lambda batch: min(lengths[i] for i in batch))
        assert [lengths[i] for batch in ordered for i in batch] == sorted(lengths)


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine that has made no policy yet."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(Parrot, "num_episodes", 0)
    return tmp_path


def of(world: str) -> RunConfig:
    return config(env__name=f"worlds:{world}")


def test_it_is_made_once_and_then_found(home: Path):
    folder = tiny.ensure(of("TaughtParrot"), RECIPE)
    assert folder.is_relative_to(home)
    assert folder == tiny.place(of("TaughtParrot"), RECIPE)
    first, num_episodes = made(folder), Parrot.num_episodes
    assert num_episodes == 2 * 20
    assert tiny.ensure(of("TaughtParrot"), RECIPE) == folder
    assert made(folder) == first
    assert Parrot.num_episodes == num_episodes


def test_two_who_need_it_at_once_make_it_once(home: Path):
    found: list[Path] = []
    threads = [threading.Thread(target=lambda: found.append(tiny.ensure(of("TaughtParrot"), RECIPE))) for _ in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 1
    assert len(found) == 2
    assert Parrot.num_episodes == 2 * 20


def test_a_making_that_was_cut_short_leaves_no_policy_and_hinders_no_later_one(home: Path):
    with pytest.raises(RuntimeError, match="no more"):
        tiny.ensure(of("DyingParrot"), RECIPE)
    assert not tiny.place(of("DyingParrot"), RECIPE).exists()
    half = tiny.place(of("TaughtParrot"), RECIPE).with_suffix(".tmp")
    half.mkdir(parents=True)
    (half / "model.safetensors").write_bytes(b"half")
    assert made(tiny.ensure(of("TaughtParrot"), RECIPE)).keys() >= FILES
    assert not half.exists()


def test_an_environment_that_nobody_can_demonstrate_has_no_tiny_policy(home: Path):
    with pytest.raises(ConfigError, match=r"model\.path=.tiny.: environment .*Parrot.* has no demonstrations"):
        tiny.ensure(of("Parrot"), RECIPE)


def test_each_recipe_environment_and_prompt_has_a_policy_of_its_own(home: Path):
    runs = [
        config(),
        config(env__name="tinyguess"),
        config(env__reward="upstream"),
        config(prompt__style="paper"),
        config(rollout__history=1),
    ]
    places = [*(tiny.place(run, RECIPE) for run in runs), tiny.place(config())]
    assert len(set(places)) == len(places)
    assert tiny.place(config(seed=7, trainer__lr=1.0, partition__tasks_per_client=5), RECIPE) == places[0]
