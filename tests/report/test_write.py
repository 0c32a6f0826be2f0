import re
import shutil

import pytest
from ledgers import evaluation, run_folder

from flwr_agent.errors import ConfigError
from flwr_agent.report.write import write

CURVES = [
    f"{mode}-{name}-{axis}"
    for axis in ("rounds", "env_steps", "tokens")
    for mode in ("sampled", "greedy")
    for name in ("success", "task_score")
]
TRAINING = ["clients", "reward", "kl", "entropy", "sampler-gap", "grad-norm", "zero-std-groups", "update-norm", "update-cosine"]  # fmt: skip
COSTS = ["seconds-round", "seconds-client", "bytes-round"]


@pytest.fixture(scope="module")
def single(tmp_path_factory):
    folder = run_folder(tmp_path_factory.mktemp("single") / "run")
    return write([folder], folder)


def figures(page):
    return re.findall(r'<figure id="([\w-]+)"', page.read_text())


def test_a_page_has_every_figure_and_each_lies_beside_it(single):
    assert sorted(figures(single)) == sorted(CURVES + TRAINING + COSTS)
    pictures = {path.stem for path in (single.parent / "figures").glob("*.png")}
    assert pictures == set(figures(single))
    assert all(path.stat().st_size > 5000 for path in (single.parent / "figures").iterdir())


def test_a_page_needs_nothing_but_itself(single):
    text = single.read_text()
    assert "<script" not in text
    assert not re.search(r'(?:src|href)="(?!#)', text.replace("xlink:href", "href"))
    assert not re.search(r"@import|url\((?!#)", text)


def test_a_page_shows_the_tables(single):
    text = single.read_text()
    for title in ("Results", "By task type, sampled", "By task type, greedy", "What the clients did", "Failures"):
        assert f"<h2>{title}</h2>" in text
    assert "<td>6/8 = 0.750" in text
    assert "<p>None.</p>" in text


def test_runs_side_by_side_are_labelled_and_seeds_pooled(tmp_path):
    folders = [
        run_folder(tmp_path / f"{lr}-{seed}", seed=seed, trainer__lr=lr, solved=(2, 3 + seed))
        for lr in (0.1, 0.2)
        for seed in (0, 1)
    ]
    text = write(folders, tmp_path / "out").read_text()
    assert "<title>4 runs of 2 experiments</title>" in text
    assert text.count("lr=0.1 (2 seeds)") > 3
    assert "<td>0.438</td><td>0.088</td><td>0.375 to 0.500</td>" in text


def test_a_run_given_twice_or_copied_is_not_two_seeds(tmp_path):
    folder = run_folder(tmp_path / "run", seed=7)
    copy = shutil.copytree(folder, tmp_path / "copy")
    for again in (folder, folder / ".." / "run", copy):
        with pytest.raises(ConfigError, match=f"RUN='{again.name}': has the configuration and the seed 7 of run; give"):
            write([folder, again], tmp_path / "page")
    assert not (tmp_path / "page").exists()


def test_episodes_are_shown_only_if_they_were_kept(tmp_path, single):
    assert "Best and worst episodes" not in single.read_text()
    episode = {"kind": "best", "mode": "sampled", "task": "val-3", "type": "pick", "score": 1.0, "stop": "done"}
    turns = [{"prompt": "You see <b>a mug</b>.", "answer": "take mug"}]
    folder = run_folder(tmp_path / "run", evaluation(3, 7) | {"episodes": [episode | {"turns": turns}]})
    text = write([folder], folder).read_text()
    assert "best: val-3, sampled, score 1.00,\n1 turns, done" in text
    assert "You see &lt;b&gt;a mug&lt;/b&gt;." in text


def test_a_run_that_has_only_begun_has_a_page(tmp_path):
    folder = run_folder(tmp_path / "run", solved=(2,))
    assert sorted(figures(write([folder], folder))) == sorted(CURVES)
