import json
from dataclasses import replace
from pathlib import Path

import pytest
from fakes import config, model
from safetensors import SafetensorError

from flwr_agent.arrays import digest
from flwr_agent.errors import FullError, ResumeError
from server_app import checkpoint
from server_app.checkpoint import RunState


def state(round_):
    arrays = model(round_)
    return RunState(
        round=round_,
        arrays=arrays,
        digest=digest(arrays),
        base_digest="base",
        experiment="e",
        clients=(0, 1),
        ledger_position=7 * round_,
    )


def folders(path):
    return sorted(item.name for item in path.iterdir())


def save_rounds(path, count, run=None):
    for round_ in range(count):
        checkpoint.save(path, state(round_), run or config())


def test_the_highest_round_comes_back_bit_for_bit(tmp_path):
    save_rounds(tmp_path, 12)
    found = checkpoint.resume(tmp_path, config(federation__rounds=11))
    assert digest(found.arrays) == digest(model(11))
    assert replace(found, arrays={}) == replace(state(11), arrays={})


def test_the_last_two_rounds_and_round_zero_are_kept(tmp_path):
    save_rounds(tmp_path, 5)
    assert folders(tmp_path) == ["round-00000", "round-00003", "round-00004"]


def test_the_newest_rounds_and_the_milestones_are_kept(tmp_path):
    save_rounds(tmp_path, 11, config(checkpoint__keep=3, checkpoint__milestone_every=4))
    assert [int(name[-5:]) for name in folders(tmp_path)] == [0, 4, 8, 9, 10]


def test_what_a_strategy_carries_comes_back_bit_for_bit(tmp_path):
    moments = {"first/a": model(3)["actor/embed"], "second/a": model(4)["actor/embed"]}
    checkpoint.save(tmp_path, replace(state(1), strategy=moments), config())
    assert digest(checkpoint.resume(tmp_path, config()).strategy) == digest(moments)
    (tmp_path / "round-00001" / "strategy.safetensors").unlink()
    with pytest.raises(ResumeError, match=r"strategy\.safetensors is not what was written"):
        checkpoint.resume(tmp_path, config())


def test_rounds_are_ordered_as_numbers(tmp_path):
    for round_ in (4, 10):
        checkpoint.save(tmp_path, state(round_), config())
    assert checkpoint.resume(tmp_path, config(federation__rounds=10)).round == 10


def test_an_empty_folder_starts_at_nothing(tmp_path):
    assert checkpoint.resume(tmp_path, config()) is None


def test_a_torn_round_is_set_aside_and_never_read(tmp_path):
    save_rounds(tmp_path, 3)
    (tmp_path / "round-00003.tmp").mkdir()
    (tmp_path / "round-00003.tmp" / "model.safetensors").write_bytes(b"half")
    (tmp_path / "round-00002" / "state.json").unlink()
    assert checkpoint.resume(tmp_path, config()).round == 1
    assert folders(tmp_path) == ["_stale", "round-00000", "round-00001"]
    assert folders(tmp_path / "_stale") == ["round-00002.1", "round-00003.tmp.1"]
    (tmp_path / "round-00002").mkdir()
    checkpoint.resume(tmp_path, config())
    assert folders(tmp_path / "_stale") == ["round-00002.1", "round-00002.2", "round-00003.tmp.1"]


def test_a_changed_objective_is_refused_by_its_key(tmp_path):
    save_rounds(tmp_path, 2)
    with pytest.raises(ResumeError, match=r"trainer\.lr was 0\.0004, is 0\.001\. .*fresh=true.*output_dir") as caught:
        checkpoint.resume(tmp_path, config(trainer__lr=1e-3, federation__round_timeout_s=5.0))
    assert "timeout" not in str(caught.value)
    with pytest.raises(ResumeError, match=r"worker\.torch_threads was 1, is 2"):
        checkpoint.resume(tmp_path, config(worker__torch_threads=2))


def test_delta_sets_local_noise_and_may_not_change(tmp_path):
    checkpoint.save(tmp_path, state(0), config())
    with pytest.raises(ResumeError, match=r"privacy.delta was 1e-05, is 1e-06"):
        checkpoint.resume(tmp_path, config(privacy__delta=1e-6))


def test_what_is_not_the_objective_may_change(tmp_path):
    save_rounds(tmp_path, 2)
    assert checkpoint.resume(tmp_path, config(federation__rounds=90, trainer__micro_rows=1)).round == 1


def test_rounds_beyond_the_last_one_asked_for_are_refused_with_the_ways_out(tmp_path):
    save_rounds(tmp_path, 6)
    with pytest.raises(ResumeError, match=r"round 5, beyond federation\.rounds=2; set federation\.rounds=5 .*fresh"):
        checkpoint.resume(tmp_path, config(federation__rounds=2))
    assert "round-00005" in folders(tmp_path)


def test_a_checkpoint_of_another_version_is_refused(tmp_path):
    save_rounds(tmp_path, 1)
    path = tmp_path / "round-00000" / "state.json"
    path.write_text(path.read_text().replace('"version": 2', '"version": 3'))
    with pytest.raises(ResumeError, match="checkpoint version 3"):
        checkpoint.resume(tmp_path, config())


def test_a_damaged_model_is_noticed(tmp_path):
    save_rounds(tmp_path, 1)
    path = tmp_path / "round-00000" / "model.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(bytes(data))
    with pytest.raises(ResumeError, match="damaged"):
        checkpoint.resume(tmp_path, config())


def test_archiving_keeps_everything_and_leaves_an_empty_folder(tmp_path):
    for attempt in (1, 2):
        save_rounds(tmp_path, 2)
        (tmp_path / "ledger.jsonl").write_text("x")
        checkpoint.archive(tmp_path)
        assert folders(tmp_path) == ["_archive"]
        assert folders(tmp_path / "_archive" / f"run.{attempt}") == ["ledger.jsonl", "round-00000", "round-00001"]
    checkpoint.archive(tmp_path)
    assert folders(tmp_path / "_archive") == ["run.1", "run.2"]


def test_a_folder_serves_one_run_at_a_time(tmp_path):
    with (
        checkpoint.held(tmp_path / "run"),
        pytest.raises(ResumeError, match="another run"),
        checkpoint.held(tmp_path / "run"),
    ):
        pytest.fail("two runs got in")
    with checkpoint.held(tmp_path / "run"):
        pass


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: (path / "state.json").write_bytes(b"\xff{"),
        lambda path: (path / "state.json").write_text("[1]"),
        lambda path: (path / "state.json").write_text("{}"),
        lambda path: (path / "model.safetensors").write_bytes(b"torn"),
        lambda path: path.rename(path.with_name("round-00007")),
    ],
)
def test_a_damaged_checkpoint_is_refused_by_name_and_left_alone(tmp_path, damage):
    checkpoint.save(tmp_path, state(2), config(federation__rounds=9))
    damage(tmp_path / "round-00002")
    with pytest.raises(ResumeError, match=r"round-0000\d is damaged .* set fresh=true"):
        checkpoint.resume(tmp_path, config(federation__rounds=9))


def test_somebody_elses_folder_is_refused_and_left_as_it_is(tmp_path):
    (tmp_path / "thesis.tex").write_text("mine")
    (tmp_path / "round-trip").mkdir()
    assert checkpoint.resume(tmp_path, config()) is None
    with pytest.raises(ResumeError, match="holds 'round-trip' but no checkpoint"):
        checkpoint.check_is_ours(tmp_path, config())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["round-trip", "thesis.tex"]


def test_a_run_killed_before_its_first_checkpoint_begins_again(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"fingerprint": config().fingerprint()}))
    (tmp_path / "ledger.jsonl").write_text('{"kind": "ledger", "version": 1}\n')
    checkpoint.check_is_ours(tmp_path, config())
    (tmp_path / "ledger.jsonl").write_text('{"kind": "round", "round": 1}\n')
    with pytest.raises(ResumeError, match="no checkpoint"):
        checkpoint.check_is_ours(tmp_path, config())


def test_a_full_disk_is_said_of_the_run_folder(tmp_path):
    fix = rf"^{tmp_path}: No space left on device; make room; the same command goes on"
    with (
        pytest.raises(FullError, match=fix),
        checkpoint.room(tmp_path),
        Path("/dev/full").open("wb", buffering=0) as full,
    ):
        full.write(b"x")
    rust = "Error while serializing: I/O error: No space left on device (os error 28)"
    with pytest.raises(FullError, match=fix), checkpoint.room(tmp_path):
        raise SafetensorError(rust)
    with pytest.raises(OSError, match="No such file"), checkpoint.room(tmp_path):
        (tmp_path / "absent").read_bytes()


@pytest.mark.parametrize("name", ["model.safetensors", "state.json"])
def test_a_checkpoint_that_cannot_be_written_leaves_nothing(tmp_path, monkeypatch, name):
    save_rounds(tmp_path, 1)
    mkdir = Path.mkdir

    def filled(self, *arguments, **keys):
        mkdir(self, *arguments, **keys)
        mkdir(self / name)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "mkdir", filled)
        with pytest.raises((OSError, SafetensorError)):
            checkpoint.save(tmp_path, state(1), config())
    assert folders(tmp_path) == ["round-00000"]
