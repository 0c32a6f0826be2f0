"""Real sites in one federation: private tasks, their own limits, a number that nobody knew beforehand."""

import json
from functools import partial

import pytest
from fakes import FakeGrid, InMemoryGrid, config, model, train
from flwr.app import Context, Error, Message, RecordDict
from policies import guessing

from client_app.app import app
from envs.webshop import catalogue
from flwr_agent import protocol
from flwr_agent.arrays import digest, load
from flwr_agent.errors import ConfigError
from flwr_agent.requests import InitialModel
from flwr_agent.rl.learner import initial_model
from flwr_agent.seeds import choose_clients
from server_app.run import run
from strategies import stream

pytestmark = pytest.mark.usefixtures("task_identity", "no_pause")
ITEMS, INSTRUCTIONS, _ = catalogue.generate()
SHOPS = {2: ITEMS[:110], 5: ITEMS[110:220], 9: ITEMS[220:330]}
"""Partition-id of each site and the products of its shop."""
REFUSES = 9


@pytest.fixture
def no_pause(monkeypatch):
    monkeypatch.setattr(stream, "POLL_S", 0.0)


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sites")
    for client_id, items in SHOPS.items():
        shop = folder / str(client_id)
        shop.mkdir()
        (shop / "items_shuffle.json").write_text(json.dumps(items))
        (shop / "items_ins_v2.json").write_text(json.dumps(INSTRUCTIONS))
        own = {"use": {"env.data_path": str(shop), "trainer.micro_rows": 2}}
        limits = {"limits": {"federation.epochs_per_round": 1}} if client_id == REFUSES else {}
        (folder / f"{client_id}.yaml").write_text(json.dumps(own | limits))
    return folder


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    return guessing(tmp_path_factory.mktemp("policy")) | {
        "env__name": "webshop",
        "partition__strategy": "site",
        "partition__tasks_per_client": 100,
        "federation__total_clients": 0,
        "federation__clients_per_round": 3,
        "federation__rounds": 1,
        "federation__retries": 0,
        "evaluation__where": "sites",
        "evaluation__tasks": 3,
        "rollout__max_turns": 2,
    }


def sites(home, nodes):
    """Deployed nodes, each under its own node_config."""

    def serve(message):
        node = message.metadata.dst_node_id
        own = {"partition-id": nodes[node], "site": str(home / f"{nodes[node]}.yaml")}
        return [app(message, Context(1, node, own, RecordDict(), {}))]

    return FakeGrid(serve, nodes=list(nodes))


def play(folder, home, nodes, keys):
    run(config(**keys, output_dir=str(folder)), sites(home, nodes), initial_model=initial_model, serve=pytest.fail)
    return [json.loads(line) for line in (folder / "ledger.jsonl").read_text().splitlines()]


def last(folder):
    return digest(load(max(folder.glob("round-*")) / "model.safetensors"))


def of_kind(lines, kind):
    return [line for line in lines if line["kind"] == kind]


def test_sites_train_on_tasks_of_their_own_and_one_s_refusal_is_a_line_and_not_the_end(home, keys, tmp_path):
    lines = play(tmp_path / "run", home, {11: 5, 7: 9, 3: 2}, keys)
    assert [line["clients"] for line in of_kind(lines, "accepted")] == [[2, 5]]
    refused = [line for line in of_kind(lines, "client") if line["client_id"] == 9]
    assert {line["reason"] for line in refused} == {
        "ProtocolError: this site refuses federation.epochs_per_round=2: its limit is 1"
    }
    evaluation = of_kind(lines, "evaluation")[-1]
    assert set(evaluation["clients"]) == {"2", "5"}
    assert evaluation["metrics"]["worst_client/success"] == min(c["success"] for c in evaluation["clients"].values())
    assert len(evaluation["outcomes"]["sampled/success"]) == 2 * keys["evaluation__tasks"]
    tasks = [task.partition(":") for task in evaluation["tasks"]]
    played = {client: {task for owner, _, task in tasks if owner == client} for client in ("2", "5")}
    assert not played["2"] & played["5"], "no task is known to two sites"
    summary = json.loads((tmp_path / "run" / "federated_summary.json").read_text())
    assert set(summary["val_curve"][-1]["client_success_rate"]) == {"2", "5"}


def arithmetic(nodes):
    """The same nodes with clients that learn by arithmetic."""

    def serve(message):
        node = message.metadata.dst_node_id
        if node not in nodes:
            return [Message(Error(5, "Node Unavailable"), reply_to=message)]
        own = {"partition-id": nodes[node]}
        if message.metadata.message_type == protocol.HELLO:
            return [Message(protocol.hello_reply_content(message.content, own), reply_to=message)]
        return [protocol.answered(message, partial(learnt, own))]

    def learnt(own, message):
        request = protocol.train_request(message.content, own)
        return Message(protocol.train_reply_content(request, train(request)), reply_to=message)

    return FakeGrid(serve, nodes=list(nodes))


OPEN = {
    "partition__strategy": "site",
    "federation__total_clients": 0,
    "federation__rounds": 3,
    "evaluation__where": "off",
}


def learn(folder, grid, **keys):
    run(config(**OPEN | keys, output_dir=str(folder)), grid, initial_model=start, serve=pytest.fail)
    return [json.loads(line) for line in (folder / "ledger.jsonl").read_text().splitlines()]


def start(_):
    return InitialModel(arrays=model(), base_digest="base")


def test_the_bits_do_not_depend_on_the_order_in_which_sites_appear(tmp_path):
    learn(tmp_path / "one", arithmetic({11: 5, 3: 2}))
    learn(tmp_path / "two", arithmetic({1: 2, 40: 5}))
    assert last(tmp_path / "one") == last(tmp_path / "two")


def test_of_sites_nobody_counted_the_seeded_choice_is_made_among_those_there(tmp_path):
    lines = learn(tmp_path, arithmetic({11: 5, 3: 2, 8: 40}), federation__clients_per_round=2)
    expected = [[[2, 5, 40][i] for i in choose_clients(42, r, 3, 2)] for r in (1, 2, 3)]
    assert [line["clients"] for line in of_kind(lines, "accepted")] == expected


def test_a_site_that_joins_later_takes_part_from_then_on(tmp_path):
    grid = arithmetic(nodes := {11: 5})
    serve = grid.serve

    def joining(message):
        if message.metadata.group_id == "1":
            nodes[4] = 1
            grid.nodes[:] = list(nodes)
        return serve(message)

    grid.serve = joining
    lines = learn(tmp_path, grid, federation__clients_per_round=1, federation__rounds=6)
    clients = [line["clients"] for line in of_kind(lines, "accepted")]
    assert clients[0] == [5]
    assert [1] in clients


def test_a_site_that_comes_back_under_another_node_id_keeps_its_place(tmp_path):
    grid = arithmetic(nodes := {11: 5, 3: 2})
    serve = grid.serve

    def moving(message):
        if message.metadata.group_id == "2" and 3 in nodes:
            del nodes[3]
            nodes[77] = 2
            grid.nodes[:] = list(nodes)
        return serve(message)

    grid.serve = moving
    learn(tmp_path / "moved", grid)
    learn(tmp_path / "still", arithmetic({11: 5, 3: 2}))
    assert last(tmp_path / "moved") == last(tmp_path / "still")


def test_where_nodes_are_not_told_apart_the_number_of_clients_is_needed(tmp_path):
    with pytest.raises(ConfigError, match=r"federation.total_clients=0: nobody knows who takes part"):
        learn(tmp_path, InMemoryGrid(pytest.fail))
