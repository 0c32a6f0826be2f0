"""Rows to tensors: padding that is trimmed to what a chunk needs, and the split into optimizer steps."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.nn.utils.rnn import pad_sequence

from flwr_agent.rl.generate import left_pad
from flwr_agent.rl.samples import Sample
from flwr_agent.rl.trl_seam import Batch


def to_batch(samples: Sequence[Sample], *, pad_id: int, num_tokens: int, device: torch.device | str) -> Batch:
    """Tensors of a chunk; `num_tokens` counts the model's tokens of the whole optimizer step, not of the chunk."""
    prompt_ids, prompt_mask = left_pad([s.prompt_ids for s in samples], pad_id, device)
    return {
        "prompt_ids": prompt_ids,
        "prompt_mask": prompt_mask,
        "completion_ids": right_pad([s.response_ids for s in samples], pad_id, device),
        "completion_mask": right_pad([[1] * len(s.response_ids) for s in samples], 0, device),
        "tool_mask": right_pad([s.mask for s in samples], 0, device),
        "advantages": right_pad([s.advantages for s in samples], 0, device),
        "num_items_in_batch": torch.tensor(float(num_tokens), device=device),
    }


def right_pad(
    rows: Sequence[Sequence[float] | torch.Tensor], fill: float, device: torch.device | str = "cpu"
) -> torch.Tensor:
    """Stack rows `[T_i]` to `[B, T]`, their left ends aligned; T is the longest row's length."""
    return pad_sequence([torch.as_tensor(row) for row in rows], batch_first=True, padding_value=fill).to(device)


def minibatches(num_rows: int, size: int, *, seed: int) -> list[list[int]]:
    """Row indices of each optimizer step: all rows at once if `size` is 0, else a seeded shuffle cut into `size`."""
    size = size or max(num_rows, 1)
    order = torch.randperm(num_rows, generator=torch.Generator().manual_seed(seed)).tolist()
    return [order[at : at + size] for at in range(0, num_rows, size)]


def chunks(indices: Sequence[int], samples: Sequence[Sample], size: int) -> list[list[int]]:
    """Forward passes of at most `size` rows, rows of like length together so that little is padded."""
    by_length = sorted(indices, key=lambda i: (len(samples[i].prompt_ids) + len(samples[i].response_ids), i))
    return [by_length[at : at + size] for at in range(0, len(by_length), size)]
