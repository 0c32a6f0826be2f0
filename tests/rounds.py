"""Rounds over the in-memory transport, and the ways in which a reply can be wrong."""

from __future__ import annotations

import numpy as np
from fakes import InMemoryGrid, client, config, model, train
from flwr.app import Array, ArrayRecord, Error, Message, RecordDict

from flwr_agent import protocol
from flwr_agent.arrays import digest, from_record, to_record
from strategies import FedAvg, Observer
from strategies.aggregate import Mean

RUN = protocol.run_record(config(), experiment="run", base_digest="base")
IN_BUCKETS = protocol.run_record(config(), experiment="run", base_digest="base", in_buckets=True)


class Notes(Observer):
    def __init__(self):
        self.outcomes, self.sets, self.rounds = [], [], []

    def answered(self, outcome):
        self.outcomes.append(outcome)

    def accepted(self, round_, clients):
        self.sets.append((round_, list(clients)))

    def finished(self, round_):
        self.rounds.append(round_)

    def status(self):
        return {outcome.client_id: str(outcome.status) for outcome in self.outcomes}


def fedavg(num=4, **options):
    return FedAvg(**({"total_clients": num, "clients_per_round": num} | options))


def play(serve=None, strategy=None, num_rounds=1, timeout=5.0, notes=None, record=RUN, **transport):
    grid = InMemoryGrid(serve or client(), **transport)
    result = (strategy or fedavg()).start(
        grid, to_record(model()), num_rounds=num_rounds, timeout=timeout, train_config=record, observer=notes
    )
    return digest(from_record(result.arrays))


def batch_mean(clients, weigh=lambda _: 1.0, round_=1):
    mean = Mean()
    for client_id in clients:
        content = protocol.request_content(
            to_record(model()), protocol.addressed(RUN, round_=round_, client_id=client_id, placement="any")
        )
        reply = train(protocol.train_request(content, {}))
        mean.add(reply.arrays, weigh(reply))
    return digest(mean.value())


def for_client(client_id, change, serve=None):
    """Let `change` rewrite the replies to one client."""
    honest = serve or client()

    def served(message):
        replies = honest(message)
        return change(replies) if protocol.client_of(message.content) == client_id else replies

    return served


def error_reply(replies):
    return [Message(Error(2, "<class 'ValueError'>:\n  boom"), reply_to=request_of(replies))]


def request_of(replies):
    """A stand-in with the metadata of the request."""
    reply = replies[0]
    message = Message(RecordDict(), reply.metadata.src_node_id, "train")
    message.metadata.__dict__["_message_id"] = reply.metadata.reply_to_message_id
    return message


def with_arrays(change):
    def changed(replies):
        content = replies[0].content
        content["arrays"] = change(content["arrays"])
        return replies

    return changed


def with_content(change):
    def changed(replies):
        change(replies[0].content)
        return replies

    return changed


def poisoned(value):
    bad = model()
    bad["actor/embed"][1, 2] = value
    return with_arrays(lambda _: to_record(bad))


def other_round(replies):
    replies[0].content["config"]["server-round"] = 7
    return replies


BAD = {
    "error": error_reply,
    "nan": poisoned(np.nan),
    "inf": poisoned(np.inf),
    "no arrays": with_content(lambda content: content.pop("arrays")),
    "no metrics": with_content(lambda content: content.pop("metrics")),
    "empty arrays": with_arrays(lambda _: ArrayRecord()),
    "missing name": with_arrays(lambda record: ArrayRecord(dict(list(record.items())[1:]))),
    "extra name": with_arrays(lambda record: ArrayRecord({**record, "x": Array(np.zeros(1, "f4"))})),
    "wrong shape": with_arrays(lambda record: ArrayRecord({**record, "actor/scale": Array(np.zeros(1, "f4"))})),
    "fp64": with_arrays(lambda record: ArrayRecord({k: Array(v.numpy().astype("f8")) for k, v in record.items()})),
    "damaged bytes": with_arrays(
        lambda record: ArrayRecord({k: Array(v.dtype, v.shape, v.stype, v.data[:-1]) for k, v in record.items()})
    ),
    "wrong round": other_round,
    "wrong client": with_content(lambda content: content["config"].update({"client-id": 0})),
    "wrong run": with_content(lambda content: content["config"].update({"experiment": "other"})),
    "negative rows": with_content(lambda content: content["metrics"].update({"num-examples": -1})),
}
