"""Few objects for many arrays on the wire: Flower's SuperLink takes its time for every object, hardly for its bytes.

A bucket holds the bytes of consecutive arrays one after the other and says nothing about itself. Whoever takes it knows
the names, shapes and form that are due, so nothing that came over the wire is parsed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

from flwr_agent import payload
from flwr_agent.errors import ProtocolError

if TYPE_CHECKING:
    from flwr.app import ArrayRecord

LARGEST = 64 * 2**20
"""Bytes of a bucket; an array beyond it has one of its own."""
DTYPE = "uint8"
STYPE = "bucket"


def join(record: ArrayRecord, *, keep_input: bool = True) -> ArrayRecord:
    """The arrays of a record in buckets; `keep_input=False` empties it on the way, to hold one bucket's copy only."""
    from flwr.app import Array, ArrayRecord

    joined = ArrayRecord()
    for bucket, names in _names({name: len(array.data) for name, array in record.items()}).items():
        data = b"".join([(record[name] if keep_input else record.pop(name)).data for name in names])
        joined[bucket] = Array(DTYPE, (len(data),), STYPE, data)
    return joined


def split(record: ArrayRecord, shapes: Mapping[str, tuple[int, ...]], compression: str) -> ArrayRecord:
    """The arrays by name that `join` has put into buckets; their bytes are views.

    Args:
        record: the buckets.
        shapes: of the arrays that are due, in their order.
        compression: their form.

    Raises:
        ProtocolError: other buckets, or buckets of other bytes, than these arrays make.
    """
    from flwr.app import Array, ArrayRecord

    forms = payload.forms(shapes, compression)
    due = _names({name: size for name, (_, size) in forms.items()})
    if wrong := sorted(record.keys() ^ due.keys()):
        raise ProtocolError(f"{wrong[0]!r} is missing or was not asked for; {len(due)} buckets are due")
    found = ArrayRecord()
    for bucket, names in due.items():
        array, size = record[bucket], sum(forms[name][1] for name in names)
        if (array.dtype, array.stype, array.shape, len(array.data)) != (DTYPE, STYPE, (size,), size):
            raise ProtocolError(f"{bucket} is {array.dtype} of {len(array.data):,} bytes, due are {size:,} of {DTYPE}")
        rest = memoryview(array.data)
        for name in names:
            dtype, length = forms[name]
            found[name] = Array(dtype, shapes[name], payload.stype(compression), b"")
            found[name].data, rest = cast(bytes, rest[:length]), rest[length:]
    return found


def _names(sizes: Mapping[str, int]) -> dict[str, list[str]]:
    """Names by bucket, in order."""
    buckets: list[list[str]] = []
    room = 0
    for name, size in sizes.items():
        if not buckets or size > room:
            buckets.append([])
            room = LARGEST
        buckets[-1].append(name)
        room -= size
    return {f"bucket-{i}": names for i, names in enumerate(buckets)}
