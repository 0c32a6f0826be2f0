"""The how-tos as they stand in docs/howto.md: short, and they do what the page says."""

import numpy as np
import pytest
from fakes import InMemoryGrid, client, config, model
from pages import blocks
from typer.testing import CliRunner

import strategies
from envs import partition
from envs.tinyguess import TinyGuess
from flwr_agent import protocol, validate
from flwr_agent.arrays import from_record, to_record
from flwr_agent.cli.app import app
from flwr_agent.config import AlgorithmConfig
from flwr_agent.errors import ProtocolError
from flwr_agent.paths import ROOT
from flwr_agent.rl.samples import credit_of

PAGE = ROOT / "docs" / "howto.md"


@pytest.fixture(autouse=True)
def files(tmp_path, monkeypatch):
    """Each Python block in the file that its first line names."""
    for body in blocks(PAGE, "python"):
        (tmp_path / body.splitlines()[0].removeprefix("# ")).write_text(body, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_there_are_four_and_each_has_fewer_than_forty_lines():
    found = [body.splitlines() for body in blocks(PAGE, "python")]
    assert [body[0] for body in found] == ["# coin.py", "# cautious.py", "# sorted_by.py", "# rloo.py"]
    assert max(map(len, found)) < 40


def test_the_environment_keeps_the_contract_and_its_oracle_wins():
    done = CliRunner().invoke(app, ["check", "coin:Coin"], catch_exceptions=False)
    assert done.exit_code == 0, done.stdout


@pytest.mark.usefixtures("task_identity")
def test_the_strategy_goes_half_of_the_way():
    def result(name):
        run = config(strategy__name=name)
        record = protocol.run_record(run, experiment="run", base_digest="base")
        start = strategies.load(run).start
        return from_record(start(InMemoryGrid(client()), to_record(model()), num_rounds=1, train_config=record).arrays)

    whole, half = result("fedavg"), result("cautious:Cautious")
    for name, old in model().items():
        np.testing.assert_allclose(half[name], (old + whole[name]) / 2, rtol=1e-6)


def test_the_partition_deals_by_category():
    tasks = TinyGuess().tasks("train")
    by_id = {task.id: task.meta["category"] for task in tasks}
    shards = [partition.shard(tasks, c, 8, "sorted_by:by_category", tasks_per_client=32) for c in range(8)]
    assert all(len(shard.task_ids) == 32 for shard in shards)
    assert {len({by_id[i] for i in shard.task_ids}) for shard in shards} == {1}
    assert len({by_id[shard.task_ids[0]] for shard in shards}) > 1


def test_the_algorithm_credits_an_episode_against_the_others():
    own = AlgorithmConfig(advantage="rloo:leave_one_out")
    rows = [(0, 1.0), (0, 1.0), (1, 0.0), (2, 0.5)]
    assert credit_of(own)(rows, own) == pytest.approx([0.75, 0.75, 0.0 - 2.5 / 3, 0.5 - 2.0 / 3])
    assert credit_of(own)([(0, 1.0)], own) == [0.0]


def test_a_site_takes_no_algorithm_from_the_wire():
    run = config(algorithm__advantage="rloo:leave_one_out")
    validate.check_knobs(run, {"algorithm.advantage": "rloo:leave_one_out"})
    with pytest.raises(ProtocolError, match=r"algorithm.advantage='rloo:leave_one_out' names code"):
        protocol.own_code_only(run)


def test_every_command_of_the_page_is_one_of_the_program():
    lines = [line for body in blocks(PAGE, "sh") for line in body.splitlines()]
    names = {command.name or command.callback.__name__ for command in app.registered_commands}
    assert lines
    assert all(line.split()[:3] == ["python", "-m", "flwr_agent"] and line.split()[3] in names for line in lines)
