"""Requests and replies as Flower records; no other module knows a record key.

A message holds one ArrayRecord ("arrays"), one ConfigRecord ("config") and, coming back, one MetricRecord ("metrics")
with the same keys from every client, which is what Flower's own mods and strategies expect. Every request names the
protocol version and the code it was made by, and every reply repeats whom it answers.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from copy import copy
from typing import Any, TypeVar
from urllib.parse import urlsplit

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict

from flwr_agent import buckets, manifest, payload
from flwr_agent.arrays import from_record
from flwr_agent.config import RunConfig, resolve
from flwr_agent.errors import ProtocolError
from flwr_agent.paths import code_hash
from flwr_agent.requests import PROTOCOL_VERSION, Arrays, EvaluateReply, EvaluateRequest, TrainReply, TrainRequest
from flwr_agent.wire import PLAIN

logger = logging.getLogger("flwr.agent")
ARRAYS, CONFIG, METRICS = "arrays", "config", "metrics"
HELLO, GOODBYE = "query.hello", "query.goodbye"
PARTITION = "partition-id"
PROX_MU = "proximal-mu"
ANY, BOUND = "any", "partition"
"""Placements: a node serves any client, or only the one that its partition-id names."""
_VERSION, _CODE, _EXPERIMENT, _BASE, _RUN = "protocol-version", "code-hash", "experiment", "base-digest", "run-config"
_ROUND, _CLIENT, _PLACEMENT, _EXAMPLES, _OUTCOMES = (
    "server-round",
    "client-id",
    "placement",
    "num-examples",
    "outcomes/",
)
_FOLDED = "folded-round"
_SHAPES = "shapes"
"""Says that arrays travel in buckets (`flwr_agent.buckets`), and in a request what is in them."""
_TASKS, _TYPES = "tasks", "types"
_MAX_EXAMPLES = 2**53
"""Beyond it a weight would not be exact."""
_ECHO = (_EXPERIMENT, _ROUND, _CLIENT)
T = TypeVar("T")


def run_record(config: RunConfig, *, experiment: str, base_digest: str, in_buckets: bool = False) -> ConfigRecord:
    """What every request of a run has in common, and whether arrays travel in buckets in both directions."""
    own = {_EXPERIMENT: experiment, _BASE: base_digest, _RUN: json.dumps(config.flat())}
    return ConfigRecord({**_versions(), **own, **({_SHAPES: "{}"} if in_buckets else {})})


def addressed(record: ConfigRecord, *, round_: int, client_id: int, placement: str, folded: int = 0) -> ConfigRecord:
    """A copy of the run's record for one client and round."""
    return ConfigRecord({**record, _ROUND: round_, _CLIENT: client_id, _PLACEMENT: placement, _FOLDED: folded})


def for_round(record: ConfigRecord, *, round_: int, placement: str) -> ConfigRecord:
    """A copy of the run's record for a request that names no client."""
    return ConfigRecord({**record, _ROUND: round_, _PLACEMENT: placement})


def request_content(arrays: ArrayRecord, record: ConfigRecord) -> RecordDict:
    """The content of a train or evaluate message; messages may share `arrays`."""
    return RecordDict({ARRAYS: arrays, CONFIG: record})


def in_form(arrays: ArrayRecord, record: ConfigRecord) -> tuple[ArrayRecord, ConfigRecord]:
    """Both as requests of a run send them; once for all that send the same model, since buckets are a copy of it."""
    if _SHAPES not in record:
        return arrays, record
    shapes = {name: array.shape for name, array in arrays.items()}
    return buckets.join(arrays), ConfigRecord({**record, _SHAPES: json.dumps(shapes)})


def by_name(content: RecordDict, asked: ConfigRecord, compression: str = PLAIN) -> RecordDict:
    """A request or a reply with its arrays by name, also if `asked`, the record of the request, says that it has buckets.

    Raises:
        ProtocolError: there are no such arrays in it.
    """
    if _SHAPES not in asked:
        return content
    shapes = {name: tuple(shape) for name, shape in json.loads(_get(asked, _SHAPES, str)).items()}
    arrays = buckets.split(_record(content, ARRAYS, ArrayRecord), shapes, compression)
    return RecordDict({**content, ARRAYS: arrays})


def model(request: RecordDict) -> Arrays:
    """Views of the arrays in a train or evaluate message, by name."""
    named = by_name(request, _record(request, CONFIG, ConfigRecord))
    return from_record(_record(named, ARRAYS, ArrayRecord))


def answered(message: Message, work: Callable[[Message], Message]) -> Message:
    """What `work` makes of a message with its arrays by name, in the form that was asked for; on the client.

    Raises:
        ProtocolError: the message does not hold what it says, or the reply has other names.
    """
    record, named = _record(message.content, CONFIG, ConfigRecord), copy(message)
    plain = ConfigRecord({key: value for key, value in record.items() if key != _SHAPES})
    named.content = RecordDict({**by_name(message.content, record), CONFIG: plain})
    reply = work(named)
    if _SHAPES in record and reply.has_content() and ARRAYS in reply.content:
        arrays, names = _record(reply.content, ARRAYS, ArrayRecord), list(_record(named.content, ARRAYS, ArrayRecord))
        if wrong := sorted(arrays.keys() ^ set(names)):
            raise ProtocolError(f"{wrong[0]!r} is missing or was not asked for")
        # A bucket is cut by the order of the request, which a trainer need not keep.
        in_order = ArrayRecord({name: arrays.pop(name) for name in names})
        reply.content[ARRAYS] = buckets.join(in_order, keep_input=False)
    return reply


def client_of(content: RecordDict) -> int:
    """The client a request asks."""
    return _get(_record(content, CONFIG, ConfigRecord), _CLIENT, int)


def names_client(content: RecordDict) -> bool:
    """Whether a request is for one client rather than for any node."""
    return _CLIENT in _record(content, CONFIG, ConfigRecord)


def is_bound(content: RecordDict) -> bool:
    """Whether a request is for the node whose partition it names."""
    return _get(_record(content, CONFIG, ConfigRecord), _PLACEMENT, str) == BOUND


def payload_bytes(content: RecordDict) -> int:
    """Bytes of arrays in a message."""
    return sum(record.count_bytes() for record in content.array_records.values())


def run_config(content: RecordDict) -> RunConfig:
    """The configuration that a request carries, as a site accepts it.

    Raises:
        ProtocolError: other version or code, or a setting that a site takes from no server.
    """
    return _config_for(content, _checked_record(content))


def train_request(content: RecordDict, node_config: Mapping[str, object]) -> TrainRequest:
    """The request in a train message, on the client.

    Raises:
        ProtocolError: other version or code, a key that is missing, or a client that is not this node's.
    """
    record = _checked_record(content)
    client_id = _get(record, _CLIENT, int)
    if is_bound(content) and node_config.get(PARTITION) != client_id:
        raise ProtocolError(
            f"asked to train client {client_id}, but this node's {PARTITION} is {node_config.get(PARTITION)}; "
            f"start its SuperNode with --node-config '{PARTITION}={client_id}'"
        )
    return TrainRequest(
        experiment=_get(record, _EXPERIMENT, str),
        round=_get(record, _ROUND, int),
        client_id=client_id,
        config=run_config(content),
        arrays=model(content),
        base_digest=_get(record, _BASE, str),
        folded=_get(record, _FOLDED, int),
    )


def train_reply_content(request: TrainRequest, reply: TrainReply) -> RecordDict:
    """A reply's message content, on the client; numbers that the manifest does not list stay there.

    Raises:
        ProtocolError: the reply cannot be sent as the run wants it, or would tell more than the manifest.
    """
    echo = ConfigRecord({_EXPERIMENT: request.experiment, _ROUND: reply.round, _CLIENT: reply.client_id})
    metrics = MetricRecord({_EXAMPLES: int(reply.num_examples), **_listed(reply.metrics, manifest.METRICS)})
    content = RecordDict({ARRAYS: payload.pack(request, reply), CONFIG: echo, METRICS: metrics})
    _check_manifest(content, request.arrays, request.config.strategy.compression)
    return content


def train_reply(content: RecordDict, asked: RecordDict) -> TrainReply:
    """The reply to `asked`, on the server; its arrays are views of the message and not yet checked.

    A request of this protocol demands that the reply repeats run, round and client. Any other request, of a ServerApp
    that only borrows a strategy, is content with Flower's own convention: arrays, and metrics with `num-examples`.

    Raises:
        ProtocolError: a record or key that is missing or of the wrong type, or a reply to another request.
    """
    record, compression = _record(asked, CONFIG, ConfigRecord), PLAIN
    if _VERSION in record:
        compression = json.loads(_get(record, _RUN, str))["strategy.compression"]
        _check_echo(_record(content, CONFIG, ConfigRecord), record)
        content, asked = by_name(content, record, compression), by_name(asked, record)
        _check_manifest(content, _record(asked, ARRAYS, ArrayRecord), compression)
    metrics = _record(content, METRICS, MetricRecord)
    if not 0 <= (num_examples := _get(metrics, _EXAMPLES, int)) <= _MAX_EXAMPLES:
        raise ProtocolError(f"{_EXAMPLES}={num_examples} is no number of rows")
    return TrainReply(
        round=_get(record, _ROUND, int),
        client_id=_get(record, _CLIENT, int),
        arrays=payload.unpack(_record(content, ARRAYS, ArrayRecord), compression),
        num_examples=num_examples,
        metrics={k: float(v) for k, v in metrics.items() if k != _EXAMPLES and not isinstance(v, list)},
    )


def evaluate_request(content: RecordDict) -> EvaluateRequest:
    """The request in an evaluate message, on the client.

    Raises:
        ProtocolError: other version or code, or a key that is missing.
    """
    record = _checked_record(content)
    return EvaluateRequest(
        experiment=_get(record, _EXPERIMENT, str),
        round=_get(record, _ROUND, int),
        config=run_config(content),
        arrays=model(content),
    )


def evaluate_reply_content(request: EvaluateRequest, reply: EvaluateReply) -> RecordDict:
    """A reply's message content, on the client; numbers that the manifest does not list stay there.

    Raises:
        ProtocolError: the reply would tell more than the manifest.
    """
    metrics, limit = _listed(reply.metrics, manifest.EVALUATION), request.config.evaluation.tasks
    manifest.check_evaluation(metrics, reply.outcomes, reply.tasks, reply.types, limit=limit)
    who = {_EXPERIMENT: request.experiment, _ROUND: reply.round}
    echo = ConfigRecord({**who, _TASKS: list(reply.tasks), _TYPES: list(reply.types)})
    lists = {_OUTCOMES + name: [float(v) for v in values] for name, values in reply.outcomes.items()}
    return RecordDict({CONFIG: echo, METRICS: MetricRecord({**metrics, **lists})})


def evaluate_reply(content: RecordDict, asked: RecordDict) -> EvaluateReply:
    """The reply to `asked`, on the server.

    Raises:
        ProtocolError: a record or key that is missing, a reply to another request, or one that tells more than the manifest.
    """
    record, answer = _record(asked, CONFIG, ConfigRecord), _record(content, CONFIG, ConfigRecord)
    _check_echo(answer, record)
    manifest.check_keys(content, (CONFIG, METRICS))
    manifest.check_keys(answer, (_EXPERIMENT, _ROUND, _TASKS, _TYPES))
    numbers = _record(content, METRICS, MetricRecord)
    metrics = {k: float(v) for k, v in numbers.items() if not isinstance(v, list)}
    outcomes = {k.removeprefix(_OUTCOMES): tuple(v) for k, v in numbers.items() if isinstance(v, list)}
    tasks, types = (tuple(map(str, _get(answer, key, list))) for key in (_TASKS, _TYPES))
    limit = json.loads(_get(record, _RUN, str))["evaluation.tasks"]
    manifest.check_evaluation(metrics, outcomes, tasks, types, limit=limit)
    return EvaluateReply(round=_get(record, _ROUND, int), metrics=metrics, outcomes=outcomes, tasks=tasks, types=types)


def hello_content() -> RecordDict:
    """Ask a node who it is, or tell it that the run is over."""
    return RecordDict({CONFIG: ConfigRecord({**_versions()})})


def hello_reply_content(content: RecordDict, node_config: Mapping[str, object]) -> RecordDict:
    """A node's answer; refuses a server of another version by name."""
    _checked_record(content)
    partition = node_config.get(PARTITION)
    own = {PARTITION: partition} if isinstance(partition, int) else {}
    return RecordDict({CONFIG: ConfigRecord({**_versions(), **own})})


def hello_reply(content: RecordDict) -> int | None:
    """The partition-id a node was started with, if any.

    Raises:
        ProtocolError: the node speaks another protocol, runs other code or tells more than that.
    """
    record = _checked_record(content)
    manifest.check_keys(content, (CONFIG,))
    manifest.check_keys(record, (_VERSION, _CODE, PARTITION))
    return _get(record, PARTITION, int) if PARTITION in record else None


def _versions() -> dict[str, int | str]:
    return {_VERSION: PROTOCOL_VERSION, _CODE: code_hash()}


def _checked_record(content: RecordDict) -> ConfigRecord:
    record = _record(content, CONFIG, ConfigRecord)
    if (version := _get(record, _VERSION, int)) != PROTOCOL_VERSION:
        raise ProtocolError(
            f"{_VERSION} {version} there, {PROTOCOL_VERSION} here: install the same flwr-agent on server and clients"
        )
    if (code := _get(record, _CODE, str)) != code_hash():
        raise ProtocolError(
            f"{_CODE} {code[:12]} there, {code_hash()[:12]} here: server and clients run different code; submit the run "
            "again, and start the SuperLink and SuperNodes outside any checkout of the app"
        )
    return record


def _check_echo(echo: Mapping[str, object], asked: Mapping[str, object]) -> None:
    for key in _ECHO:
        if key in asked and echo.get(key) != asked[key]:
            raise ProtocolError(f"answers {key}={echo.get(key)}, asked was {asked[key]}")


def _check_manifest(content: RecordDict, sent: Mapping[str, Any], compression: str) -> None:
    """Hold a training reply to what was announced for a model of these arrays."""
    manifest.check_keys(content, (ARRAYS, CONFIG, METRICS))
    manifest.check_keys(_record(content, CONFIG, ConfigRecord), _ECHO)
    expected = payload.forms({name: array.shape for name, array in sent.items()}, compression)
    manifest.check(_record(content, ARRAYS, ArrayRecord), expected, _record(content, METRICS, MetricRecord))


def own_code_only(config: RunConfig) -> RunConfig:
    """Refuse what a site never does for a server: load `module:name`, reach another machine, send a file's content.

    Raises:
        ProtocolError: names the key and the way out.
    """
    flat = config.flat()
    for key in ("env.name", "env.verifier", "partition.strategy", "algorithm.advantage", "env.url"):
        value = str(flat[key])
        if "://" in value:
            _check_local(key, value)
        elif ":" in value:
            raise ProtocolError(
                f"{key}={value!r} names code, which a site never takes from the server; install it on the "
                "node and name its entry point"
            )
    if flat["env.url"] != "none" and flat["env.token_file"] != "auto":
        raise ProtocolError(
            "env.token_file names a file of the site; leave it at `auto` and let the node's server make one"
        )
    return config


def _check_local(key: str, addresses: str) -> None:
    from envs.remote.tokens import is_loopback

    for address in addresses.split(","):
        if not is_loopback(urlsplit(address.strip()).hostname or ""):
            raise ProtocolError(
                f"{key}={address.strip()!r} is another machine, which a site never reaches for the server; let it listen "
                "on the node itself and give http://127.0.0.1:PORT"
            )


def _config_for(content: RecordDict, record: ConfigRecord) -> RunConfig:
    return own_code_only(_config(record)) if is_bound(content) else _config(record)


def _config(record: ConfigRecord) -> RunConfig:
    flat = json.loads(_get(record, _RUN, str))
    carried = {"strategy.prox_mu": _get(record, PROX_MU, float)} if PROX_MU in record else {}
    return resolve(flat, carried)


def _record(content: RecordDict, name: str, kind: type[T]) -> T:
    record = content.get(name)
    if not isinstance(record, kind):
        raise ProtocolError(f"message has no {kind.__name__} {name!r}")
    return record


def _get(record: Mapping[str, object], key: str, kind: type[T]) -> T:
    value = record.get(key)
    if not isinstance(value, kind) or isinstance(value, bool):
        raise ProtocolError(f"{key} must be of type {kind.__name__}, not {type(value).__name__}")
    return value


def _listed(metrics: Mapping[str, float], listed: Mapping[str, str]) -> dict[str, float]:
    found = {name: float(value) for name, value in metrics.items() if manifest.is_listed(name, listed)}
    if dropped := sorted(metrics.keys() - found):
        logger.warning("not sent, as flwr_agent/manifest.py does not list it: %s", ", ".join(dropped))
    return found
