import math
from itertools import combinations

import numpy as np
import pytest
from fakes import InMemoryGrid, client, config, model, train
from hypothesis import given
from hypothesis import strategies as st

import strategies
from flwr_agent import protocol
from flwr_agent.arrays import distance, to_record
from strategies.geometry import mean_cosine

lists = st.lists(st.lists(st.floats(-9, 9), min_size=3, max_size=3), min_size=2, max_size=6)


@given(lists, st.data())
def test_it_is_the_weighted_mean_of_the_pairs_cosines(updates, data):
    updates = np.array(updates)
    weights = data.draw(st.lists(st.floats(0.1, 5), min_size=len(updates), max_size=len(updates)))
    lengths = np.linalg.norm(updates, axis=1)
    pairs = [(i, j) for i, j in combinations(range(len(updates)), 2) if lengths[i] > 1e-3 and lengths[j] > 1e-3]
    mean = np.average(updates, axis=0, weights=weights)
    found = mean_cosine(lengths.tolist(), weights, float(np.linalg.norm(mean)))
    if len(pairs) == len(updates) * (len(updates) - 1) / 2:
        shares = [weights[i] * lengths[i] * weights[j] * lengths[j] for i, j in pairs]
        cosines = [updates[i] @ updates[j] / lengths[i] / lengths[j] for i, j in pairs]
        assert found == pytest.approx(np.average(cosines, weights=shares), abs=1e-6)


def test_one_update_or_one_that_moves_has_no_cosine():
    assert mean_cosine([2.0], [1.0], 2.0) is None
    assert mean_cosine([2.0, 0.0], [1.0, 1.0], 1.0) is None
    assert mean_cosine([2.0, math.nan], [1.0, 1.0], 1.0) is None


def told(request):
    """A client that says how far it moved the policy."""
    reply = train(request)
    reply.metrics["update_norm"] = distance(request.arrays, reply.arrays)
    return reply


def round_metrics(serve, **keys):
    run = config(**keys)
    record = protocol.run_record(run, experiment="run", base_digest="base")
    start = strategies.load(run).start
    return start(InMemoryGrid(serve), to_record(model()), num_rounds=1, train_config=record).train_metrics_clientapp[1]


@pytest.mark.usefixtures("task_identity")
@pytest.mark.parametrize("keys", [{}, {"federation__weights": "examples"}, {"strategy__name": "fedadam"}])
def test_a_round_has_the_cosine_of_its_two_clients(keys):
    replies = {}

    def kept(request):
        replies[request.client_id] = (request.arrays, (reply := told(request)).arrays)
        return reply

    found = round_metrics(client(kept), **keys)["update_cosine"]
    one, other = (
        np.concatenate([(after[name] - before[name]).ravel() for name in before]) for before, after in replies.values()
    )
    assert found == pytest.approx(one @ other / np.linalg.norm(one) / np.linalg.norm(other), abs=1e-4)


@pytest.mark.usefixtures("task_identity")
def test_without_the_clients_lengths_or_without_a_mean_there_is_none():
    three = {"federation__total_clients": 3, "federation__clients_per_round": 3}
    assert "update_cosine" in round_metrics(client(told), **three)
    assert "update_cosine" not in round_metrics(client(), **three)
    assert "update_cosine" not in round_metrics(client(told), strategy__name="fedmedian", **three)
