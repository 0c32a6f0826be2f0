"""What became of a round and of each client in it: the strategy says it, the ledger keeps it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from flwr.app import ArrayRecord

from flwr_agent.requests import Arrays


class Status(StrEnum):
    """How one client's request ended."""

    ACCEPTED = "accepted"
    """The reply is in the model."""
    DUPLICATE = "duplicate"
    """A further reply to an answered request; not in the model again."""
    REJECTED = "rejected"
    """The reply was malformed, not finite, or answered another request."""
    FAILED = "failed"
    """The client answered with an error."""
    MISSING = "missing"
    """No reply before the deadline."""
    UNREACHABLE = "unreachable"
    """No node could be asked."""
    SPARE = "spare"
    """The round had its replies before this one was needed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ClientOutcome:
    """One client's part in a round."""

    round: int
    """Absolute, 1-based."""
    client_id: int
    """0-based."""
    status: Status
    """How the request ended."""
    attempt: int = 1
    """Which request to this client in this round, counted from 1."""
    reason: str = ""
    """One line, unless accepted."""
    node_id: int = 0
    """Flower node that was asked; 0 if none was."""
    num_examples: int = 0
    """Training rows the client reports."""
    payload_bytes: int = 0
    """Bytes of arrays in the reply."""
    seconds: float = 0.0
    """From the round's first request to this reply's turn in the fold."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """What the client measured."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Round:
    """A finished round."""

    round: int
    """Absolute, 1-based."""
    clients: Sequence[int]
    """Accepted client ids in the order of the fold."""
    arrays: ArrayRecord
    """The new global model."""
    metrics: Mapping[str, float]
    """Mean of each metric over the accepted clients that report a finite value."""
    seconds: Mapping[str, float]
    """Wall time by stage."""
    payload_bytes: Mapping[str, int]
    """Array bytes sent and received."""
    privacy: Mapping[str, float] = field(default_factory=dict)
    """`epsilon` and `delta` spent so far; empty without noise."""
    state: Arrays = field(default_factory=dict)
    """What the strategy carries into the next round."""


class Observer:
    """Told of a run as it happens; this one keeps nothing."""

    def answered(self, outcome: ClientOutcome) -> None:
        """A client's request has ended."""

    def accepted(self, round_: int, clients: Sequence[int]) -> None:
        """The replies of a round are chosen; the server step comes next."""

    def finished(self, round_: Round) -> None:
        """The round has a model."""
