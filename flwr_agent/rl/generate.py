"""Answers in tokens: `Generator` (submit and collect) and its `transformers` engine.

Every request brings its own seed, so an answer depends on the request and the weights, not on the order of requests or
on their company (but for the rounding of a forward pass, which may depend on the shape of its batch).
Axes: `B` requests, `T` tokens, `V` vocabulary.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from peft import PeftModel
from transformers import PreTrainedModel

from flwr_agent.seeds import rng

GREEDY = 0.0
"""The temperature that means argmax."""


@dataclass(frozen=True, slots=True)
class Request:
    """One answer wanted."""

    key: int
    """Chosen by the caller; comes back in the completion."""
    prompt_ids: list[int]
    """What is answered; at least one token."""
    seed: int
    """Seed of this answer alone."""
    max_new_tokens: int
    """Length at which an answer that has not ended is cut."""
    temperature: float
    """`GREEDY` (0) or a positive sampling temperature."""


@dataclass(frozen=True, slots=True)
class Completion:
    """One answer."""

    key: int
    """The request's."""
    ids: list[int]
    """`[T]`, the token that ended it included."""
    logprobs: list[float]
    """`[T]`, at the sampling temperature (at 1 for a greedy answer)."""


class Generator(Protocol):
    """An engine that answers requests; a lockstep one answers all of them at once."""

    def submit(self, request: Request) -> None:
        """Queue one request."""
        ...

    def collect(self) -> list[Completion]:
        """Answers that are ready; waits for at least one if any request is open."""
        ...


class TransformersGenerator:
    """Lockstep engine: all queued requests are decoded as one left-padded batch with a key-value cache."""

    def __init__(
        self, model: PreTrainedModel | PeftModel, *, eos_ids: Sequence[int], pad_id: int, max_batch: int = 512
    ):
        self.model, self.pad_id, self.max_batch = model, pad_id, max_batch
        self._eos = torch.tensor(sorted(eos_ids), device=model.device)
        self._queue: deque[Request] = deque()

    def load(self, weights: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Nothing is copied: answers come from the model itself."""

    def sleep(self) -> None:
        """Drop what is queued."""
        self._queue.clear()

    def submit(self, request: Request) -> None:
        """Queue one request for the next `collect`."""
        self._queue.append(request)

    def collect(self) -> list[Completion]:
        """Decode everything queued and return it in order of submission."""
        queue = [self._queue.popleft() for _ in range(len(self._queue))]
        was_training = self.model.training
        self.model.eval()
        try:
            return [
                done
                for at in range(0, len(queue), self.max_batch)
                for done in self._decode(queue[at : at + self.max_batch])
            ]
        finally:
            self.model.train(was_training)

    @torch.inference_mode()
    def _decode(self, batch: list[Request]) -> list[Completion]:
        device = self.model.device
        input_ids, mask = left_pad([r.prompt_ids for r in batch], self.pad_id, device)
        positions = (mask.cumsum(-1) - 1).clamp(min=0)
        width = max(r.max_new_tokens for r in batch)
        draws_BT = torch.from_numpy(np.stack([rng(r.seed).random(width) for r in batch])).to(device)
        limit_B = torch.tensor([r.max_new_tokens for r in batch], device=device)
        temperature_B1 = torch.tensor([[r.temperature] for r in batch], device=device)
        alive_B = torch.ones(len(batch), dtype=torch.bool, device=device)
        ids, logprobs, alive, cache = [], [], [], None
        for t in range(width):
            out = self.model(
                input_ids=input_ids,
                attention_mask=mask,
                position_ids=positions,
                past_key_values=cache,
                use_cache=True,
                logits_to_keep=1,
            )
            cache = out.past_key_values
            token_B, logprob_B = sample(out.logits[:, -1].float(), temperature_B1, draws_BT[:, t])
            ids.append(token_B)
            logprobs.append(logprob_B)
            alive.append(alive_B)
            alive_B = alive_B & ~torch.isin(token_B, self._eos) & (t + 1 < limit_B)
            if not alive_B.any():
                break
            input_ids, positions = token_B[:, None], positions[:, -1:] + 1
            mask = torch.cat([mask, mask.new_ones(len(batch), 1)], dim=1)
        length_B = torch.stack(alive, 1).sum(1).tolist()
        ids_BT, logprobs_BT = torch.stack(ids, 1).tolist(), torch.stack(logprobs, 1).tolist()
        return [
            Completion(r.key, i[:n], p[:n]) for r, i, p, n in zip(batch, ids_BT, logprobs_BT, length_B, strict=True)
        ]


def sample(
    logits_BV: torch.Tensor, temperature_B1: torch.Tensor, draw_B: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Inverse-CDF sampling `[B, V] -> ids [B], logprobs [B]`; a temperature of 0 takes the argmax (log-prob at T=1)."""
    greedy_B1 = temperature_B1 == GREEDY
    logprobs_BV = (logits_BV / torch.where(greedy_B1, 1.0, temperature_B1)).log_softmax(-1)
    cdf_BV = logprobs_BV.exp().double().cumsum(-1)
    drawn_B1 = torch.searchsorted(cdf_BV, draw_B[:, None] * cdf_BV[:, -1:], right=True).clamp(max=logits_BV.size(1) - 1)
    token_B1 = torch.where(greedy_B1, logits_BV.argmax(-1, keepdim=True), drawn_B1)
    return token_B1[:, 0], logprobs_BV.gather(1, token_B1)[:, 0]


def left_pad(
    rows: Sequence[Sequence[int]], pad_id: int, device: torch.device | str = "cpu"
) -> tuple[torch.Tensor, torch.Tensor]:
    """Ids `[B, T]` and mask `[B, T]` of rows whose right ends are aligned."""
    width = max(len(row) for row in rows)
    ids = torch.tensor([[pad_id] * (width - len(row)) + list(row) for row in rows], device=device)
    mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows], device=device)
    return ids, mask
