"""An inference engine beside the trainer: `Engine` keeps the order asleep -> load -> answer -> sleep.

Weights are taken over whole at every load, so no answer ever comes from those of an earlier update.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Protocol

import torch
from peft import PeftModel
from transformers import PreTrainedModel

from flwr_agent.config import RunConfig
from flwr_agent.errors import WorkerError
from flwr_agent.rl.chat import Chat
from flwr_agent.rl.generate import Completion, Generator, Request, TransformersGenerator

Weights = Iterable[tuple[str, torch.Tensor]]
"""Checkpoint name -> value, tied ones once."""


class Backend(Generator, Protocol):
    """A generator that holds memory while it is awake."""

    def load(self, weights: Weights) -> None:
        """Wake up with exactly these weights and nothing cached of earlier ones."""
        ...

    def sleep(self) -> None:
        """Give memory back; what is still open is dropped."""
        ...


class Engine:
    """A generator that answers only while it is awake, and takes weights only while it is asleep."""

    def __init__(self, backend: Backend):
        self.backend = backend
        self.is_awake = False
        self.switching_s = 0.0
        """Seconds spent in `load` and `sleep` so far."""
        self._open: set[int] = set()

    @contextmanager
    def awake(self, weights: Weights) -> Iterator[Engine]:
        """The engine with these weights for the length of a block; a block that fails leaves nothing open."""
        self.load(weights)
        try:
            yield self
        except BaseException:
            self._open.clear()
            raise
        finally:
            self.sleep()

    def load(self, weights: Weights) -> None:
        """Wake up with these weights.

        Raises:
            WorkerError: it is awake.
        """
        self._expect("load", is_awake=False)
        with self._timed():
            self.backend.load(weights)
        self.is_awake = True

    def submit(self, request: Request) -> None:
        """Queue one request.

        Raises:
            WorkerError: it is asleep, or a request of this key is open.
        """
        self._expect("submit", is_awake=True)
        if request.key in self._open:
            raise WorkerError(f"request {request.key} is open already")
        self._open.add(request.key)
        self.backend.submit(request)

    def collect(self) -> list[Completion]:
        """Answers that are ready; waits for at least one if any request is open.

        Raises:
            WorkerError: it is asleep.
        """
        self._expect("collect", is_awake=True)
        found = self.backend.collect() if self._open else []
        for completion in found:
            self._open.discard(completion.key)
        return found

    def sleep(self) -> None:
        """Give memory back.

        Raises:
            WorkerError: it is asleep, or requests are open.
        """
        self._expect("sleep", is_awake=True)
        if self._open:
            raise WorkerError(f"the engine cannot sleep while {len(self._open)} requests are open")
        with self._timed():
            self.backend.sleep()
        self.is_awake = False

    @contextmanager
    def _timed(self) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.switching_s += time.perf_counter() - start

    def _expect(self, what: str, *, is_awake: bool) -> None:
        if self.is_awake is not is_awake:
            state = "awake" if self.is_awake else "asleep"
            raise WorkerError(f"{what} is illegal while the engine is {state}; the order is load, answer, sleep")


class Replica(TransformersGenerator):
    """Answers from a model of its own, which takes over the trainer's weights at every load."""

    @torch.no_grad()
    def load(self, weights: Weights) -> None:
        """Copy exactly these weights."""
        own = dict(self.model.named_parameters())
        for name, value in weights:
            own[name].copy_(value)


def to_engine(config: RunConfig, model: PreTrainedModel | PeftModel, chat: Chat, source: str) -> Engine:
    """The engine that `rollout.engine` names, asleep.

    Args:
        config: the run.
        model: what the trainer trains; the `transformers` engine samples from it directly.
        chat: says which tokens end an answer.
        source: folder or id that the policy was loaded from.

    Raises:
        ConfigError: vLLM is not installed, or its server cannot be reached.
    """
    eos_ids = sorted(chat.eos_ids)
    if config.rollout.engine == "transformers":
        kind = Replica if config.trainer.deepspeed.startswith("zero3") else TransformersGenerator
        return Engine(kind(model, eos_ids=eos_ids, pad_id=chat.pad_id))
    if config.rollout.server_url != "none":
        from flwr_agent.rl.vllm_server import ServedVLLM

        return Engine(ServedVLLM(config, eos_ids=eos_ids))
    from flwr_agent.rl.vllm_colocated import ColocatedVLLM

    return Engine(ColocatedVLLM(config, source, model, eos_ids=eos_ids))
