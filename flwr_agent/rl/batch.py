"""Rows to tensors: padding that is trimmed to what a chunk needs, and the split into optimizer steps."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from flwr_agent.rl.generate import left_pad
from flwr_agent.rl.samples import Sample
from flwr_agent.rl.trl_seam import Batch


def to_batch(samples: Sequence[Sample], *, pad_id: int, num_tokens: int, device: torch.device | str) -> Batch:
    """Tensors of a chunk; `num_tokens` counts the model's tokens of the whole optimizer step, not of the chunk."""
    prompt_ids, prompt_mask = left_pad([s.prompt_ids for s in samples], pad_id, device)
    width = max(len(s.response_ids) for s in samples)
    return {
        "prompt_ids": prompt_ids,
        "prompt_mask": prompt_mask,
        "completion_ids": _right([s.response_ids for s in samples], width, pad_id, device),
        "completion_mask": _right([[1] * len(s.response_ids) for s in samples], width, 0, device),
        "tool_mask": _right([s.mask for s in samples], width, 0, device),
        "advantages": _right([s.advantages for s in samples], width, 0.0, device),
        "num_items_in_batch": torch.tensor(float(num_tokens), device=device),
    }


def minibatches(num_rows: int, size: int, *, seed: int) -> list[list[int]]:
    """Row indices of each optimizer step: all rows at once if `size` is 0, else a seeded shuffle cut into `size`."""
    if size == 0 or size >= num_rows:
        return [list(range(num_rows))]
    order = torch.randperm(num_rows, generator=torch.Generator().manual_seed(seed)).tolist()
    return [order[at : at + size] for at in range(0, num_rows, size)]


def chunks(indices: Sequence[int], samples: Sequence[Sample], size: int) -> list[list[int]]:
    """Forward passes of at most `size` rows, rows of like length together so that little is padded."""
    by_length = sorted(indices, key=lambda i: (len(samples[i].prompt_ids) + len(samples[i].response_ids), i))
    return [by_length[at : at + size] for at in range(0, len(by_length), size)]


def _right(rows: Sequence[Sequence[float]], width: int, fill: float, device: torch.device | str) -> torch.Tensor:
    return torch.tensor([list(row) + [fill] * (width - len(row)) for row in rows], device=device)
