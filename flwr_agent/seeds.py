"""The one place seeds come from: every random draw is a pure function of (seed, purpose, ...).

No global generator is ever used; `numpy` draws take `rng(...)`, integers take `seed_for(...)`.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence

import numpy as np

MAX_EPOCH_ROWS = 100_000
"""Row seeds of one client-round; the next data seed's begin after them."""


def seed_for(*parts: object) -> int:
    """A 63-bit seed from any sequence of strings and numbers; stable across processes and machines.

    Example:
        >>> seed_for(42, "rollout", 1, 0) == seed_for(42, "rollout", 1, 0)
        True
    """
    text = "\x1f".join(str(part) for part in parts)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def rng(*parts: object) -> np.random.Generator:
    """A NumPy generator (PCG64) seeded by `seed_for(*parts)`."""
    return np.random.Generator(np.random.PCG64(seed_for(*parts)))


def choose_clients(base_seed: int, round_: int, total: int, count: int) -> list[int]:
    """Client ids of a round: all of them if `count >= total`, else a seeded sorted sample.

    Example:
        >>> choose_clients(42, 1, 100, 2)
        [14, 81]
    """
    if count >= total:
        return list(range(total))
    return sorted(random.Random(base_seed + round_ - 1).sample(range(total), count))


def extra_clients(base_seed: int, round_: int, total: int, chosen: Sequence[int], count: int) -> list[int]:
    """Clients asked beyond the chosen ones, ascending; a stream of its own, so that the choice does not depend on it.

    Example:
        >>> extra_clients(42, 1, 100, [14, 81], 2)
        [4, 40]
    """
    others = [client for client in range(total) if client not in set(chosen)]
    return sorted(rng(base_seed, "extra clients", round_).permutation(others)[:count].tolist())


def client_seed(base_seed: int, round_: int, client_id: int) -> int:
    """Data seed of one client-round: `base + 100 r + c`."""
    return base_seed + 100 * round_ + client_id


def row_seeds(data_seed: int, num_rows: int, num_epochs: int) -> list[list[int]]:
    """Task-draw seeds `[E][n]` of a client-round; epoch 0 does not depend on the number of epochs.

    Raises:
        ValueError: if `n * E` exceeds the window of one dataset and seeds would repeat.
    """
    if num_rows * num_epochs > MAX_EPOCH_ROWS:
        raise ValueError(f"{num_rows} rows x {num_epochs} epochs exceed {MAX_EPOCH_ROWS} row seeds per client-round")
    base = data_seed * MAX_EPOCH_ROWS
    return [[base + e * num_rows + i for i in range(num_rows)] for e in range(num_epochs)]


def pick(seed: int, ids: Sequence[str]) -> str:
    """The task that a row seed draws from a shard."""
    return ids[random.Random(seed).randrange(len(ids))]
