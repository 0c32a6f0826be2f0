"""The strategies in somebody else's app: the example of docs/strategies.md, as it stands there."""

import re

import numpy as np
import pytest
from fakes import InMemoryGrid, app_nodes
from flwr.app import ArrayRecord, Context, RecordDict
from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping as FlowersPrivacy

from flwr_agent.paths import ROOT
from strategies import FedAdam, FedAvg, stream

pytestmark = pytest.mark.usefixtures("task_identity", "no_pause")


@pytest.fixture
def no_pause(monkeypatch):
    monkeypatch.setattr(stream, "POLL_S", 0.0)


@pytest.fixture(scope="module")
def example():
    page = (ROOT / "docs" / "strategies.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", page, re.S)
    names = {}
    exec(code, names)  # noqa: S102 - our own page
    return names


def test_the_example_learns_with_a_stock_client_app(example, capsys):
    grid = InMemoryGrid(app_nodes(example["client"], {3: None, 9: None}), nodes=[3, 9])
    example["server"](grid, Context(1, 0, {}, RecordDict(), {}))
    shown = np.fromstring(capsys.readouterr().out.strip(" []\n"), sep=" ")
    assert shown.shape == (3,)
    assert np.all((shown > 0.1) & (shown < 1.0))
    assert len(grid.sent) == 10
    assert isinstance(example["FedAdam"](total_clients=1, clients_per_round=1), FedAdam)


def test_flowers_own_privacy_wraps_our_strategy(example):
    grid = InMemoryGrid(app_nodes(example["client"], {3: None, 9: None}), nodes=[3, 9])
    strategy = FlowersPrivacy(
        FedAvg(total_clients=2, clients_per_round=2, placement="any"),
        noise_multiplier=0.0,
        clipping_norm=0.1,
        num_sampled_clients=2,
    )
    start = ArrayRecord({"w": example["Array"](np.zeros(4, np.float32))})
    result = strategy.start(grid, start, num_rounds=1, train_config=example["ConfigRecord"]({"lr": 0.5}))
    np.testing.assert_allclose(result.arrays["w"].numpy(), 0.05, rtol=1e-5)
