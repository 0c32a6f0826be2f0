import json

import pytest
from ledgers import run_folder

from flwr_agent.errors import DataError
from flwr_agent.report import series, tables
from flwr_agent.report.runs import Run, pools


@pytest.fixture
def run(tmp_path):
    return Run.read(run_folder(tmp_path / "run"))


def test_environment_steps_and_tokens_add_up_over_clients_and_rounds(run):
    episodes = 2 * run.config["trainer.tasks_per_step"] * run.config["algorithm.group_size"]
    assert run.positions("rounds") == {0: 0, 1: 1, 2: 2}
    assert run.positions("env_steps") == {0: 0, 1: 2 * 4 * episodes, 2: 4 * 4 * episodes}
    assert run.positions("tokens") == {0: 0, 1: 2 * 200, 2: 4 * 200}


def test_runs_that_differ_in_the_seed_alone_are_pooled_and_the_others_named_by_what_differs(tmp_path):
    folders = [
        run_folder(tmp_path / f"{strategy}-{seed}", seed=seed, strategy__name=strategy, output_dir=f"/x/{seed}")
        for strategy in ("fedavg", "fedprox")
        for seed in (1, 2)
    ]
    found = pools([Run.read(folder) for folder in folders])
    assert [(pool.label, len(pool.runs)) for pool in found] == [
        ("name=fedavg (2 seeds)", 2),
        ("name=fedprox (2 seeds)", 2),
    ]


def test_runs_named_after_their_seed_share_their_name(tmp_path):
    folders = [
        run_folder(tmp_path / f"{arm}-seed{seed}", seed=seed, trainer__lr=lr)
        for arm, lr in (("slow", 0.1), ("fast", 0.2))
        for seed in (1, 2)
    ]
    assert [pool.label for pool in pools([Run.read(folder) for folder in folders])] == [
        "slow (2 seeds)",
        "fast (2 seeds)",
    ]
    one = [
        run_folder(tmp_path / "x" / "same-seed1", trainer__lr=0.1),
        run_folder(tmp_path / "y" / "same-seed1", trainer__lr=0.2),
    ]
    assert [pool.label for pool in pools([Run.read(folder) for folder in one])] == ["lr=0.1", "lr=0.2"]


def test_experiments_are_compared_by_seed_and_task_and_say_when_that_is_too_little(tmp_path):
    folders = [
        run_folder(tmp_path / f"{arm}-seed{seed}", seed=seed, trainer__lr=lr, solved=(2, last))
        for arm, lr, last in (("base", 0.1, 4), ("better", 0.2, 6))
        for seed in (1, 2)
    ]
    _, rows = tables.comparisons(pools([Run.read(folder) for folder in folders]))
    assert rows[0][:6] == ["better (2 seeds)", "base (2 seeds)", "sampled", "2", "8", "+0.250"]
    assert rows[0][7] == "no conclusion: fewer than 5 seeds or 500 tasks"
    assert [row[2] for row in rows] == ["sampled", "greedy"]


def test_only_an_interval_without_zero_of_enough_seeds_and_tasks_is_a_conclusion():
    assert tables.verdict(0.01, 0.1, 5, 500) == "higher"
    assert tables.verdict(-0.1, -0.01, 6, 512) == "lower"
    assert tables.verdict(-0.1, 0.01, 6, 512) == "no conclusion"
    assert tables.verdict(0.01, 0.1, 4, 512).startswith("no conclusion")
    assert tables.verdict(0.01, 0.1, 5, 256).startswith("no conclusion")


def test_a_pool_spreads_from_its_lowest_to_its_highest_seed(tmp_path):
    runs = [Run.read(run_folder(tmp_path / str(seed), seed=seed, solved=(2, 2 + seed))) for seed in (1, 3)]
    (pool,) = pools(runs)
    line = series.held_out(pool, "sampled/success")
    assert (line.rounds, line.values, line.low, line.high) == ([0, 1], [0.25, 0.5], [0.25, 0.375], [0.25, 0.625])


def test_a_single_run_has_wilson_s_band(run):
    (pool,) = pools([run])
    line = series.held_out(pool, "sampled/success")
    assert line.values == [0.25, 0.5, 0.75]
    assert (line.low[1], line.high[1]) == series.wilson(4, 8)


def test_types_partition_a_pass_and_their_sum_is_all(run):
    header, rows = tables.types(run, "sampled")
    assert header == ("task type", "tasks", "round 0", "round 2")
    assert [(row[0], row[1], row[2].split(" ")[0], row[3].split(" ")[0]) for row in rows] == [
        ("cool", "1", "0/1", "1/1"),
        ("heat", "3", "1/3", "2/3"),
        ("pick", "4", "1/4", "3/4"),
        ("All", "8", "2/8", "6/8"),
    ]


def test_the_overview_never_takes_the_best_round(tmp_path):
    run = Run.read(run_folder(tmp_path / "run", solved=(2, *[8] * 2, *[4] * 10)))
    _, rows = tables.overview(pools([run]))
    assert rows[0][5:8] == ["0.250", "0.500", "0.500 (10)"]
    assert rows[0][9] == "+0.250"


def test_failures_are_counted_by_cause(tmp_path):
    lost = {"kind": "client", "round": 1, "client_id": 1, "metrics": {}}
    run = Run.read(
        run_folder(
            tmp_path / "run",
            lost | {"status": "failed", "reason": "OutOfMemory: 3 GB"},
            lost | {"status": "failed", "reason": "OutOfMemory: 4 GB"},
            lost | {"status": "missing", "reason": "no reply"},
            {"kind": "evaluation_failed", "round": 1, "reason": "no node"},
            {"kind": "resume", "round": 1, "accepted": None},
        )
    )
    _, rows = tables.failures([run])
    assert rows == [
        ["run", "client failed", "OutOfMemory", "2"],
        ["run", "client missing", "no reply", "1"],
        ["run", "evaluation", "no node", "1"],
        ["run", "run", "resumed after round 1", "1"],
    ]


def test_seconds_are_means_of_a_round(run):
    (pool,) = pools([run])
    assert series.server_seconds(pool.runs[0]) == pytest.approx(
        {"place": 0.1, "send": 0.1, "receive_and_fold": 4.0, "digest": 0.1, "checkpoint": 0.1, "evaluate": 2.0}
    )
    assert series.client_seconds(run) == {"rollout": 3.0, "update": 1.0}


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("config.json", None, "cannot be read"),
        ("config.json", "[]", "is damaged"),
        ("ledger.jsonl", '{"kind": "round"}\n', "does not open a ledger"),
        ("ledger.jsonl", "nonsense\n", "cannot be read .line 1: "),
    ],
)
def test_a_folder_that_is_not_a_run_s_is_refused(tmp_path, file, content, message):
    folder = run_folder(tmp_path / "run")
    (folder / file).unlink()
    if content is not None:
        (folder / file).write_text(content)
    with pytest.raises(DataError, match=message):
        Run.read(folder)


def test_a_line_that_is_being_written_is_left_out(tmp_path):
    folder = run_folder(tmp_path / "run")
    before = Run.read(folder).lines
    with (folder / "ledger.jsonl").open("a") as file:
        file.write(json.dumps({"kind": "round"})[:7])
    assert Run.read(folder).lines == before
