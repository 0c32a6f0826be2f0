import json
from pathlib import Path

import pytest

from benchmarks import arms, repeated, study


def test_a_run_that_fails_is_named_and_one_that_is_done_is_left_alone(tmp_path: Path):
    done, wrong = tmp_path / "done", tmp_path / "wrong"
    done.mkdir()
    kept = json.dumps({"seconds": 12.5, "machine": "a machine"})
    (done / repeated.DONE).write_text(kept)
    with pytest.raises(SystemExit, match=str(wrong)):
        repeated.finish({done: ["seed=1"], wrong: ["seed=-1"]}, jobs=2)
    assert [path.name for path in done.iterdir()] == [repeated.DONE]
    assert not repeated.is_done(wrong)
    assert "seed=-1" in wrong.with_suffix(".out").read_text()
    assert (repeated.seconds([done]), repeated.machines([done])) == (12.5, "a machine")


def test_a_run_with_other_settings_is_not_taken_for_the_one_that_is_asked_for(tmp_path: Path):
    (tmp_path / repeated.DONE).write_text(json.dumps({"seconds": 1, "machine": "", "settings": ["seed=1"]}))
    repeated.finish({tmp_path: ("seed=1",)}, jobs=1)
    with pytest.raises(SystemExit, match=f"other settings; choose another folder or remove them: {tmp_path}"):
        repeated.finish({tmp_path: ["seed=2"]}, jobs=1)


@pytest.mark.parametrize(
    ("given", "folder", "settings"),
    [
        ([], "runs/x", []),
        (["seed=1", "--jobs", "3", "preset=ppo"], "runs/x", ["seed=1", "preset=ppo"]),
        (["elsewhere", "seed=1", "--jobs", "3"], "elsewhere", ["seed=1"]),
    ],
)
def test_a_folder_may_be_left_out_before_settings(monkeypatch, given, folder, settings):
    monkeypatch.setattr("sys.argv", ["benchmark", *given])
    found = arms.options(None, "runs/x")
    assert (found.folder, found.settings) == (Path(folder).absolute(), settings)
    assert found.jobs == (3 if given else 1)


def test_a_study_has_every_arm_of_a_seed_before_the_next_seed(tmp_path: Path):
    runs = study.to_runs(tmp_path, 2, ["federation.rounds=1"])
    names = [folder.name for folder in runs]
    assert names == [f"{arm}-seed{seed}" for seed in study.SEEDS[:2] for arm in study.ARMS]
    assert all(settings[-1] == "federation.rounds=1" for settings in runs.values())
    assert study.plan(runs, jobs=2) == f"0 runs done, {len(runs)} left"
