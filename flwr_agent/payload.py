"""What a client's arrays become on the wire, and what the server makes of them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from flwr_agent import codec
from flwr_agent.arrays import DTYPE, STYPE, from_record, plain_bytes, to_record
from flwr_agent.errors import ProtocolError
from flwr_agent.requests import Arrays, TrainReply, TrainRequest
from flwr_agent.residual import Residual
from flwr_agent.seeds import rng
from flwr_agent.wire import DELTA, PLAIN

if TYPE_CHECKING:
    from flwr.app import ArrayRecord


def pack(request: TrainRequest, reply: TrainReply) -> ArrayRecord:
    """A reply's arrays as `strategy.payload` and `strategy.compression` want them, on the client.

    Raises:
        ProtocolError: a value that cannot be compressed, or a residual that this disk has lost.
    """
    own = request.config.strategy
    if own.payload != DELTA:
        return to_record(reply.arrays)
    moved = {name: values - request.arrays[name] for name, values in reply.arrays.items()}
    return _compressed(request, moved) if own.compression != PLAIN else to_record(moved, keep_input=False)


def unpack(record: ArrayRecord, compression: str) -> Arrays:
    """A record's arrays by name, on the server: views, or new arrays if they were compressed.

    Raises:
        ProtocolError: an array that is not what was asked for; named.
    """
    if compression == PLAIN:
        return from_record(record)
    found: Arrays = {}
    for name, array in record.items():
        try:
            found[name] = codec.decode(array, compression)
        except ProtocolError as error:
            raise ProtocolError(f"{name}: {error}") from error
    return found


def forms(shapes: Mapping[str, tuple[int, ...]], compression: str) -> dict[str, tuple[str, int]]:
    """The dtype and the bytes of every array of a reply."""
    if compression == PLAIN:
        return {name: (DTYPE.name, plain_bytes(shape)) for name, shape in shapes.items()}
    return {
        name: (codec.DTYPES[compression], codec.num_bytes(math.prod(shape), compression))
        for name, shape in shapes.items()
    }


def stype(compression: str) -> str:
    """What the arrays of a reply say they are serialised as."""
    return STYPE if compression == PLAIN else compression


def _compressed(request: TrainRequest, moved: Arrays) -> ArrayRecord:
    from flwr.app import ArrayRecord

    own, record, lost = request.config.strategy, ArrayRecord(), {}
    residual = Residual(request.experiment, request.client_id)
    owed = residual.after(request.folded) if own.error_feedback else {}
    for name in list(moved):
        values = np.asarray(moved.pop(name) + owed.pop(name, np.float32(0)), DTYPE)
        draw = rng(request.experiment, request.round, request.client_id, name)
        try:
            record[name] = codec.encode(values, own.compression, draw)
        except ProtocolError as error:
            raise ProtocolError(f"{name} {error}") from error
        if own.error_feedback:
            lost[name] = values - codec.decode(record[name], own.compression)
    if own.error_feedback:
        residual.keep(request.folded, request.round, lost)
    return record
