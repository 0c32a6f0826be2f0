"""Rows to tensors: padding that is trimmed to what a chunk needs, and the split into optimizer steps."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.nn.utils.rnn import pad_sequence

from flwr_agent.rl.generate import left_pad
from flwr_agent.rl.samples import Sample

Batch = dict[str, torch.Tensor]
"""`prompt_ids [B, P]` left-padded, `completion_ids [B, T]` right-padded, their masks, `tool_mask [B, T]` (1 = the
model's own token), `advantages`, `sampler_per_token_logps [B, T]`, `num_items_in_batch`, and where needed
`old_per_token_logps`, `ref_per_token_logps`, `old_values`, `returns [B, T]`, `critic_weight [B, 1]`."""


def is_own(batch: Batch) -> torch.Tensor:
    """Booleans `[B, T]`: the tokens that the model said itself, the only ones that are trained on."""
    return (batch["completion_mask"] * batch["tool_mask"]).bool()


def positions(mask_BT: torch.Tensor) -> torch.Tensor:
    """Positions `[B, T]` counted from the first real token, as in generation."""
    return (mask_BT.cumsum(-1) - 1).clamp(min=0)


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
        "sampler_per_token_logps": right_pad([s.logprobs for s in samples], 0, device),
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


def by_length(indices: Sequence[int], samples: Sequence[Sample]) -> list[int]:
    """Rows from short to long."""
    return sorted(indices, key=lambda i: (len(samples[i].prompt_ids) + len(samples[i].response_ids), i))


def chunks(indices: Sequence[int], size: int) -> list[list[int]]:
    """Forward passes of at most `size` rows; rows of like length beside each other need little padding."""
    return [list(indices[at : at + size]) for at in range(0, len(indices), size)]
