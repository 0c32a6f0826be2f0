"""A written schedule of killed clients, for rehearsals: simulation and SuperNodes of this machine act it out alike.

```yaml
- client: 1      # the node of client 1 is killed while it serves round 2,
  killed_in: 2   # and is there again when round 4 begins
  back_in: 4
```
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from flwr_agent.config import FederationConfig, RunConfig
from flwr_agent.errors import AgentError, ConfigError, DataError

KEY, NONE = "federation.faults", "none"
NEVER = 0


class KilledError(AgentError, RuntimeError):
    """The schedule has killed this client's node; the simulation's word for it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Fault:
    """One client's node, killed and perhaps back.

    Example:
        >>> [Fault(client=1, killed_in=2, back_in=4).is_away(round_) for round_ in (1, 2, 3, 4)]
        [False, True, True, False]
    """

    client: int
    """0-based."""
    killed_in: int
    """The round it is killed in."""
    back_in: int = NEVER
    """The first round it serves again; 0 is never."""

    def is_away(self, round_: int) -> bool:
        """Whether the client gives no reply in a round."""
        return self.killed_in <= round_ and (self.back_in == NEVER or round_ < self.back_in)


def scheduled(config: RunConfig) -> tuple[Fault, ...]:
    """The faults of a run.

    Raises:
        ConfigError: there is no such file.
        DataError: the file is no schedule, or none of this federation.
    """
    if config.federation.faults == NONE:
        return ()
    path = Path(config.federation.faults)
    if not path.is_file():
        raise ConfigError(KEY, str(path), "no such file; give a fault schedule (YAML), or `none`")
    try:
        entries = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise DataError(path, "YAML", f"{str(error).splitlines()[0]}; write a list of faults") from error
    if not isinstance(entries, list):
        raise DataError(path, "YAML", "must be a list of faults, each with client, killed_in and back_in")
    faults = tuple(_fault(path, i, entry, config.federation) for i, entry in enumerate(entries))
    for i, fault in enumerate(faults):
        if any(fault.client == other.client and _meet(fault, other) for other in faults[:i]):
            raise DataError(path, f"[{i}]", f"client {fault.client} is away then by another entry; leave one out")
    return faults


def check(faults: Sequence[Fault], *, round_: int, client: int) -> None:
    """Refuse to serve a round that the schedule has a client miss.

    Raises:
        KilledError: it is away.
    """
    if any(fault.client == client and fault.is_away(round_) for fault in faults):
        raise KilledError(f"client {client} is killed in round {round_} by {KEY}")


def _meet(one: Fault, other: Fault) -> bool:
    return one.is_away(other.killed_in) or other.is_away(one.killed_in)


def _fault(path: Path, index: int, entry: Any, fed: FederationConfig) -> Fault:
    names = {"client", "killed_in", "back_in"}
    if not isinstance(entry, dict) or not set(entry) <= names or not {"client", "killed_in"} <= set(entry):
        raise DataError(path, f"[{index}]", "must have client, killed_in and, unless it stays away, back_in")
    for name, value in entry.items():
        if not isinstance(value, int) or isinstance(value, bool):
            raise DataError(path, f"[{index}].{name}", f"must be a whole number, not {value!r}")
    fault = Fault(**entry)
    if not 0 <= fault.client < (total := fed.total_clients or fed.clients_per_round):
        raise DataError(path, f"[{index}].client", f"clients are 0 to {total - 1}")
    if fault.killed_in < 1 or (fault.back_in != NEVER and fault.back_in <= fault.killed_in):
        raise DataError(path, f"[{index}]", "killed_in must be a round, and back_in a later one")
    if fault.killed_in > fed.rounds:
        raise DataError(path, f"[{index}].killed_in", f"rounds are 1 to {fed.rounds} (federation.rounds)")
    return fault
