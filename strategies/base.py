"""The round loop all strategies share."""

from __future__ import annotations

import itertools
import logging
import time
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from flwr_agent import protocol
from flwr_agent.arrays import to_record
from flwr_agent.config import RunConfig
from flwr_agent.errors import ConfigError, QuorumError
from flwr_agent.modes import LOCAL
from flwr_agent.requests import Arrays, TrainReply
from flwr_agent.seeds import choose_clients, extra_clients
from flwr_agent.wire import DELTA, VALUE
from strategies.aggregate import Aggregator, Mean
from strategies.exchange import Exchange
from strategies.fold import Fold, Request
from strategies.geometry import likeness
from strategies.nodes import Nodes, default_placement
from strategies.privacy import CentralDP, ClippedMean
from strategies.rounds import Observer, Round

logger = logging.getLogger("flwr.agent")
FOLDED = "folded-rounds"
"""State: the last round whose reply is in the model, by client id; 0 before the first."""


class RoundStrategy(Strategy):
    """A Flower strategy with absolute rounds, seeded client choice, streamed replies and a quorum.

    A subclass says what a reply weighs (`weight`), how the mean of the replies becomes the next model (`step`) and, if
    clients need a knob of its own, what their request carries (`train_config`).

    Example:
        >>> strategy = FedAvg(total_clients=100, clients_per_round=2, seed=42)
        >>> strategy.start(grid, initial_arrays, num_rounds=70).arrays
    """

    knobs: ClassVar[frozenset[str]] = frozenset({"payload", "compression", "error_feedback"})
    """Names under `strategy.` that the strategy uses; others are refused when they are set."""
    is_private: ClassVar[bool] = True
    """Whether noise may be calibrated for it: the next model depends on the replies through their plain mean alone."""

    def __init__(  # noqa: PLR0913 - keywords that every user of the plug-in may leave out
        self,
        *,
        total_clients: int,
        clients_per_round: int,
        seed: int = 42,
        min_clients: int = 1,
        payload: str = VALUE,
        error_feedback: bool = False,
        privacy: CentralDP | None = None,
        retries: int = 0,
        extra_clients: int = 0,
        only_client: int | None = None,
        placement: str | None = None,
        connect_timeout_s: float = 60.0,
    ) -> None:
        """Say who takes part.

        Args:
            total_clients: clients in the federation; ids are 0 .. total_clients - 1. With 0 they are those connected.
            clients_per_round: clients asked each round.
            seed: seed of the choice.
            min_clients: accepted replies below which a round raises `QuorumError`.
            payload: whether clients send their weights (`value`) or how they have moved (`delta`).
            error_feedback: remember which reply of each client was folded last, and tell it with the next request.
            privacy: clip updates and add noise to their mean.
            retries: times a client whose reply cannot be used is asked again within the round.
            extra_clients: clients asked beyond `clients_per_round`, of whose replies the first usable ones count.
            only_client: asked alone in every round, instead of the seeded choice.
            placement: `any` node serves any client, or a node's `partition` binds it; by default `any` in simulation.
            connect_timeout_s: seconds a round waits for the nodes of its clients.

        Raises:
            ConfigError: noise cannot be calibrated for this strategy.
        """
        self.total_clients, self.clients_per_round, self.seed = total_clients, clients_per_round, seed
        self.min_clients, self.placement, self.connect_timeout_s = min_clients, placement, connect_timeout_s
        self.payload, self.error_feedback, self.privacy = payload, error_feedback, privacy
        if privacy is not None and not self.is_private:
            fix = f"noise is calibrated for a mean, which {type(self).__name__} is not; set it to 0"
            raise ConfigError("privacy.noise_multiplier", privacy.noise_multiplier, fix)
        self.retries, self.extra_clients, self.only_client = retries, extra_clients, only_client
        self._observer, self._replay = Observer(), {}
        self._nodes: Nodes | None = None
        self._fold: Fold | None = None
        self._measured: dict[str, float] = {}
        self._folded = np.zeros(total_clients, np.int64)

    @classmethod
    def from_config(cls, config: RunConfig) -> Self:
        """The strategy of a run."""
        return cls(**cls.options(config))

    @classmethod
    def options(cls, config: RunConfig) -> dict[str, Any]:
        """Constructor arguments of a run; a subclass adds its own."""
        fed = config.federation
        return {
            "total_clients": fed.total_clients,
            "clients_per_round": fed.clients_per_round,
            "seed": config.seed,
            "min_clients": fed.min_clients,
            "payload": config.strategy.payload,
            "error_feedback": config.strategy.error_feedback,
            "privacy": CentralDP.from_config(config),
            "connect_timeout_s": fed.connect_timeout_s,
            "retries": fed.retries,
            "extra_clients": fed.extra_clients,
            "only_client": fed.local_client if fed.mode == LOCAL else None,
        }

    @abstractmethod
    def weight(self, reply: TrainReply) -> float:
        """Weight of a reply in the mean; one that is not positive is refused."""

    @abstractmethod
    def step(self, arrays: Arrays, mean: Arrays) -> Arrays:
        """The next model, from this one and the mean of the replies."""

    def aggregator(self) -> Aggregator:
        """Where the replies of a round go; a weighted mean, unless a subclass has another rule."""
        return Mean()

    def measured(self) -> dict[str, float]:
        """What the strategy itself measured in the round, beside the clients' metrics."""
        return {}

    def train_config(self, config: ConfigRecord) -> ConfigRecord:
        """What every train request of a round carries beside the model."""
        return config

    def state_arrays(self) -> Arrays:
        """What `load_state` needs, beside the model, to go on after the last round; empty if that is nothing."""
        return {FOLDED: self._folded.copy()} if self.error_feedback else {}

    def load_state(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Go on from what `state_arrays` of the same strategy has given, or from the beginning if that is nothing.

        Raises:
            ValueError: the arrays are not this strategy's.
        """
        if extra := sorted(arrays.keys() - self.state_arrays()):
            raise ValueError(f"{type(self).__name__} keeps no {extra[0]!r}")
        if arrays:
            self._folded = np.array(arrays[FOLDED], np.int64)

    def choose(self, server_round: int) -> Sequence[int]:
        """Client ids of a round, ascending: a function of the seed and the round alone."""
        if fixed := self._replay.get(server_round):
            return fixed
        if self.only_client is not None:
            return [self.only_client]
        return choose_clients(self.seed, server_round, self.total_clients, self.clients_per_round)

    def _chosen(self, server_round: int, nodes: Nodes) -> Sequence[int]:
        """The choice with the extra clients, ascending; a replayed round has none.

        Where the number of clients is unknown (0), it is made among those connected, whatever the order they came in.
        """
        if not self.total_clients and server_round not in self._replay:
            there = list(nodes.clients(at_least=self.clients_per_round))
            self._folded.resize(max([len(self._folded), *(client + 1 for client in there)]), refcheck=False)
            picked = choose_clients(self.seed, server_round, len(there), self.clients_per_round)
            return [there[i] for i in picked]
        chosen = self.choose(server_round)
        if not self.extra_clients or server_round in self._replay:
            return chosen
        extra = extra_clients(self.seed, server_round, self.total_clients, chosen, self.extra_clients)
        return sorted([*chosen, *extra])

    def start(  # noqa: PLR0913 - Flower's signature
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,  # noqa: ARG002 - Flower's signature
        evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None = None,
        *,
        first_round: int = 1,
        observer: Observer | None = None,
        replay: Mapping[int, Sequence[int]] | None = None,
    ) -> Result:
        """Run rounds `first_round` .. `num_rounds`, counted from 1 over the whole life of a run.

        Args:
            grid: the way to the nodes.
            initial_arrays: the model before `first_round`.
            num_rounds: the last round.
            timeout: seconds a round waits for replies.
            train_config: sent with every train request.
            evaluate_config: unused; held-out evaluation is `evaluate_fn`.
            evaluate_fn: called with the round before the first one, then after each round.
            first_round: the first round; above 1 to resume.
            observer: told of each client's outcome and each round as they happen.
            replay: clients to ask in given rounds instead of the seeded choice.

        Raises:
            QuorumError: fewer than `min_clients` replies of a round could be used.
            BudgetError: the next round would spend more than `privacy` allows.
            ResumeError: the secret of earlier rounds' noise is gone.
        """
        self._observer, self._replay = observer or Observer(), replay or {}
        self._nodes = None
        self.summary()
        result = Result(arrays=initial_arrays)
        del initial_arrays  # a round holds one model, in its requests
        _evaluate(evaluate_fn, first_round - 1, result)
        for server_round in range(first_round, num_rounds + 1):
            if self.privacy is not None:
                self.privacy.check_key(server_round)
                self.privacy.check_budget(server_round)
            self._run_round(grid, server_round, result, train_config or ConfigRecord(), timeout)
            _evaluate(evaluate_fn, server_round, result)
        return result

    def _run_round(self, grid: Grid, server_round: int, result: Result, config: ConfigRecord, timeout: float) -> None:
        clock = [time.monotonic()]
        self.configure_train(server_round, result.arrays, config, grid)
        result.arrays = ArrayRecord()
        fold = self._open()
        exchange = Exchange(grid, fold, again=self._again, retries=self.retries)
        clock.append(time.monotonic())
        exchange.send()
        clock.append(time.monotonic())
        deadline = clock[1] + timeout
        replies = exchange.first(self._wanted, deadline) if fold.is_race else exchange.in_order(deadline)
        result.arrays, metrics = self.aggregate_train(server_round, replies)
        result.train_metrics_clientapp[server_round] = metrics
        clock.append(time.monotonic())
        seconds = [end - begin for begin, end in itertools.pairwise(clock)]
        logger.info("[ROUND %d] clients %s: %s", server_round, fold.accepted, _shown(metrics))
        self._observer.finished(
            Round(
                round=server_round,
                clients=tuple(fold.accepted),
                arrays=result.arrays,
                metrics=self._measured,
                seconds=dict(zip(("place", "send", "receive_and_fold"), seconds, strict=True)),
                privacy={} if self.privacy is None else self.privacy.spent(server_round),
                state=self.state_arrays(),
                payload_bytes={"sent": exchange.sent_bytes, "received": fold.received_bytes},
            )
        )

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> list[Message]:
        """One train message per chosen client that a node can serve, by ascending client id."""
        placement = self.placement or default_placement(grid)
        self._nodes = self._nodes or Nodes(grid, placement, connect_timeout_s=self.connect_timeout_s)
        chosen = self._chosen(server_round, self._nodes)
        placed = self._nodes.place(chosen)
        arrays, common = protocol.in_form(arrays, self.train_config(config))
        base = protocol.model(protocol.request_content(arrays, common))
        self._fold = Fold(
            server_round,
            base,
            into=self._aggregator(base),
            weigh=self.weight,
            tell=self._observer.answered,
            is_race=len(chosen) > self._wanted,
        )
        for client in chosen:
            if client not in placed:
                self._fold.unreachable(client, self._nodes.why_not(client))
                continue
            record = protocol.addressed(
                common,
                round_=server_round,
                client_id=client,
                placement=placement,
                folded=int(self._folded[client]) if self.error_feedback else 0,
            )
            content = protocol.request_content(arrays, record)
            self._fold.ask(Message(content, placed[client], MessageType.TRAIN, group_id=str(server_round)))
        return [request.message for request in self._fold.requests]

    def _again(self, lost: Request) -> Message | None:
        """The message of a lost request once more, to the node that serves its client now."""
        fold, nodes = self._open(), self._nodes
        if nodes is None:
            raise RuntimeError("configure_train has to open a round before a client can be asked again")
        placed = nodes.place([lost.client_id], avoid=lost.message.metadata.dst_node_id)
        if lost.client_id not in placed:
            fold.unreachable(lost.client_id, nodes.why_not(lost.client_id))
            return None
        before = lost.message
        node, group = placed[lost.client_id], before.metadata.group_id
        return Message(before.content, node, MessageType.TRAIN, group_id=group)

    @property
    def _wanted(self) -> int:
        """Replies that a round needs, and has enough with."""
        return self.clients_per_round if self.only_client is None else 1

    def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> tuple[ArrayRecord, MetricRecord]:
        """Fold the replies as they come and take the server step.

        Raises:
            QuorumError: fewer than `min_clients` replies could be used.
        """
        fold = self._open()
        self.gather(server_round, fold, replies)
        fold.close(self._wanted)
        if len(fold.accepted) < self.min_clients:
            raise QuorumError(
                f"round {server_round}: {len(fold.accepted)} usable replies, federation.min_clients={self.min_clients}; "
                f"start the run again to resume it ({fold.why_short()})"
            )
        self._observer.accepted(server_round, tuple(fold.accepted))
        combined = self._combined(server_round, fold)
        alike = likeness(fold, combined) if fold.is_mean else {}
        new = self.step(fold.base, combined)
        if self.error_feedback:
            self._folded[fold.accepted] = server_round
        self._measured = fold.mean_metrics() | alike | self.measured()
        return to_record(new, keep_input=False), MetricRecord({**self._measured})

    def _aggregator(self, base: Arrays) -> Aggregator:
        if self.privacy is None:
            return self.aggregator()
        is_value = self.payload == VALUE
        return ClippedMean(clip=self.privacy.clip, num_clients=self._wanted, base=base if is_value else None)

    def _combined(self, server_round: int, fold: Fold) -> Arrays:
        """What the replies make together, as a model."""
        found = fold.value()
        if self.privacy is not None:
            self.privacy.add_noise(found, num_clients=self._wanted, round_=server_round, accepted=fold.accepted)
        if self.privacy is not None or self.payload == DELTA:
            for name, values in found.items():
                values += fold.base[name]
        return found

    def gather(self, server_round: int, fold: Fold, replies: Iterable[Message]) -> None:  # noqa: ARG002
        """Let the fold take every reply as it comes; a subclass may have more to give it."""
        for message in fold.in_client_order(replies):
            fold.take(message)
            del message  # so that only one reply is in memory while the next is pulled

    def configure_evaluate(
        self,
        server_round: int,  # noqa: ARG002
        arrays: ArrayRecord,  # noqa: ARG002
        config: ConfigRecord,  # noqa: ARG002
        grid: Grid,  # noqa: ARG002
    ) -> Iterable[Message]:
        """No messages: the model is scored by `evaluate_fn`, on tasks that no client trains on."""
        return []

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Nothing, as nothing was asked."""

    def summary(self) -> None:
        """Log who takes part."""
        logger.info(
            "%s: %d of %d clients a round, at least %d, seed %d",
            type(self).__name__,
            self.clients_per_round,
            self.total_clients,
            self.min_clients,
            self.seed,
        )

    def _open(self) -> Fold:
        if self._fold is None:
            raise RuntimeError("configure_train has to open a round before its replies can be aggregated")
        return self._fold


def _shown(metrics: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value:.4g}" for name, value in metrics.items())


def _evaluate(
    evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None, server_round: int, result: Result
) -> None:
    metrics = evaluate_fn(server_round, result.arrays) if evaluate_fn else None
    if metrics is not None:
        result.evaluate_metrics_serverapp[server_round] = metrics
        logger.info("[ROUND %d] held out: %s", server_round, _shown(metrics))
