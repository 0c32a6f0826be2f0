"""What leaves a client: every name, dtype and number of bytes of a reply, and nothing else.

A reply holds arrays of the model, numbers from the list below and the three words that say whom it answers. There is no
field in which a prompt, an observation, an action or a trajectory could travel; both ends check each reply.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from flwr_agent.errors import ProtocolError
from flwr_agent.payload import forms

if TYPE_CHECKING:
    from flwr.app import Array

FILE = "manifest.txt"
"""In the run folder: what `lines` says, before the first request."""
METRICS: Mapping[str, str] = {
    "num-examples": "training rows",
    "rows": "rows of a rollout",
    "rows_dropped": "rows without an advantage, left out",
    "tokens_trained": "model tokens in the loss",
    "prompt_tokens": "tokens of all prompts",
    "padding_tokens": "positions of the rows that hold no token",
    "response_tokens": "tokens of all answers",
    "updates": "optimizer steps",
    "loss": "mean policy loss",
    "kl": "mean divergence from the anchor (algorithm.kl_anchor)",
    "entropy": "mean entropy of the policy",
    "clip_fraction": "share of tokens beyond the ratio clip",
    "sampler_*": "how far the generator's probabilities are from the trainer's",
    "importance*": "weights that correct for the generator",
    "grad_norm*": "gradient norm before and after clipping",
    "prox_norm": "norm of the proximal term",
    "update_norm": "how far the client moved the policy",
    "critic/*": "value model: loss, values, returns",
    "reward": "mean training reward",
    "success": "share of episodes won",
    "task_score": "mean score of the environment",
    "turns": "mean turns of an episode",
    "valid_actions": "share of answers in the format",
    "env_errors": "episodes that the environment broke",
    "truncated*": "shares of episodes, answers and prompts that were cut, by cause",
    "episodes": "episodes played",
    "advantage_mass/*": "share of the advantage on short, middle and long episodes",
    "env/*": "means of what the environment measures for an experiment",
    "zero_std_groups": "share of groups whose returns are all equal",
    "time/*": "seconds by stage",
    "norm_bit": "whether an update was clipped (mod adaptiveclipping)",
}
"""Numbers that a training reply may hold, one each; `*` stands for any end of the name."""


def is_listed(name: str) -> bool:
    """Whether a reply may hold a number of that name."""
    return any(fnmatchcase(name, pattern) for pattern in METRICS)


def lines(shapes: Mapping[str, tuple[int, ...]], compression: str) -> list[str]:
    """The manifest for people, before anything is sent: totals, then one line for each array and number."""
    arrays = forms(shapes, compression)
    total = sum(size for _, size in arrays.values())
    head = (
        f"a training reply holds {len(arrays)} arrays ({total:,} bytes), numbers of {len(METRICS)} kinds and the run, "
        "round and client it answers; no prompt, observation, action or trajectory"
    )
    rows = [f"array {name}: {dtype}, {size:,} bytes" for name, (dtype, size) in arrays.items()]
    return [head, *rows, *(f"number {name}: float64, 8 bytes ({what})" for name, what in METRICS.items())]


def check(arrays: Mapping[str, Array], expected: Mapping[str, tuple[str, int]], metrics: Mapping[str, object]) -> None:
    """Refuse a reply that holds anything but what `lines` has announced.

    Raises:
        ProtocolError: the first thing beyond the manifest, by name.
    """
    for name, array in arrays.items():
        if expected.get(name) != (array.dtype, len(array.data)):
            found = f"{array.dtype}, {len(array.data):,} bytes"
            raise ProtocolError(f"{name} ({found}) is not in the manifest of what leaves a client")
    for name, value in metrics.items():
        if not is_listed(name) or isinstance(value, list):
            raise ProtocolError(f"{name!r} is not in the manifest of what leaves a client (flwr_agent/manifest.py)")
