"""The processes that train one client together: rank 0 gives the orders, and each trains on its share of the rows.

`python -m flwr_agent.rl.ranks` is one of the others; the launcher starts it and writes it the configuration.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import sys
import threading
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from flwr_agent.config import resolve
from flwr_agent.rl.samples import Sample

if TYPE_CHECKING:
    from flwr_agent.rl.trainer import Trainer

IDLE = timedelta(days=7)
"""How long a rank waits for its next order."""
FILLER = -1
"""Row index of the filler that evens out shares: its tokens are all masked, so it weighs nothing."""


class Ranks:
    """This process among those of its client; alone if no group was started."""

    def __init__(self) -> None:
        is_group = dist.is_available() and dist.is_initialized()
        self.rank, self.count = (dist.get_rank(), dist.get_world_size()) if is_group else (0, 1)
        # Orders have a group of their own: waiting for one must neither time out nor occupy a GPU.
        self._orders = _orders() if self.count > 1 else None

    def share(self, rows: Sequence[int]) -> list[int]:
        """This rank's rows, as many as every rank's; `FILLER` where there are too few."""
        own = list(rows[self.rank :: self.count])
        return own + [FILLER] * (math.ceil(len(rows) / self.count) - len(own))

    def merged(self, found: Mapping[int, torch.Tensor], lengths: Mapping[int, int]) -> dict[int, torch.Tensor]:
        """Values `[T]` of all rows from each rank's own; `lengths` has the T of every row."""
        if self.count == 1:
            return dict(found)
        some = next(iter(found.values()))
        flat = some.new_zeros(sum(lengths.values()))
        parts = dict(zip(lengths, flat.split(list(lengths.values())), strict=True))
        for row in found.keys() & parts.keys():
            parts[row].copy_(found[row])
        dist.all_reduce(flat)
        return parts

    def total(self, values: Sequence[float]) -> list[float]:
        """Sum of each value over the ranks."""
        if self.count == 1:
            return list(values)
        sums = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(sums, group=self._orders)
        return sums.tolist()

    def tell(self, order: str, **facts: Any) -> None:
        """Let the other ranks do what this one does next; said by rank 0, and by nobody where there is no other."""
        if self.count > 1 and self.rank == 0:
            data = torch.frombuffer(bytearray(json.dumps([order, facts]).encode()), dtype=torch.uint8)
            dist.broadcast(torch.tensor([data.numel()]), 0, group=self._orders)
            dist.broadcast(data, 0, group=self._orders)

    def hear(self) -> tuple[str, dict[str, Any]]:
        """The next order."""
        size = torch.zeros(1, dtype=torch.int64)
        dist.broadcast(size, 0, group=self._orders)
        data = torch.empty(int(size), dtype=torch.uint8)
        dist.broadcast(data, 0, group=self._orders)
        order, facts = json.loads(bytes(data.numpy()))
        return order, facts


def _orders() -> dist.ProcessGroup:
    group = dist.new_group(backend="gloo", timeout=IDLE)
    if not isinstance(group, dist.ProcessGroup):  # what a process outside the group gets
        raise TypeError("every rank is in the group of orders")
    return group


def follow(trainer: Trainer) -> None:
    """Do as rank 0 does until it is gone."""
    while True:
        order, facts = trainer.ranks.hear()
        if order == "train":
            trainer.train([Sample(**row) for row in facts["samples"]], seed=facts["seed"])
        elif order in ("begin_round", "take"):
            getattr(trainer, order)({}, **facts)
        else:
            for _ in getattr(trainer, order)(**facts) or ():
                pass


def to_facts(samples: Sequence[Sample]) -> list[dict[str, Any]]:
    """Rows as an order carries them."""
    return [dataclasses.asdict(sample) for sample in samples]


def _end_with_rank_0() -> None:
    sys.stdin.read()
    os._exit(0)


def main() -> None:
    """Read the configuration, train along, end with rank 0."""
    from flwr_agent.rl.trainer import Trainer

    config = resolve(json.loads(sys.stdin.readline()))
    threading.Thread(target=_end_with_rank_0, daemon=True).start()
    torch.set_num_threads(config.worker.torch_threads)
    follow(Trainer.load(config))


if __name__ == "__main__":
    main()
