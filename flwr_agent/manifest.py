"""What leaves a client: every name, dtype and number of bytes of a reply, and nothing else.

A training reply holds arrays of the model, numbers from the list below and the three words that say whom it answers. A
reply to an evaluation holds numbers, and for each held-out task its id, its category and its scores. There is no field in
which a prompt, an observation, an action or a trajectory could travel; both ends check each reply.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
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
_PLAYED = ("success", "task_score", "turns", "valid_actions", "env_errors", "truncated*", "episodes", "env/*")
EVALUATION: Mapping[str, str] = {
    **{name: METRICS[name] for name in _PLAYED},
    **{f"greedy/{name}": f"{METRICS[name]}, decoded greedily" for name in _PLAYED},
    "tasks": "held-out tasks played",
    "time/*": METRICS["time/*"],
}
"""Numbers that a reply to an evaluation may hold, one each."""
OUTCOMES: Mapping[str, str] = {
    f"{mode}/{name}": f"{what} of each task, {mode}"
    for mode in ("sampled", "greedy")
    for name, what in (("success", "success"), ("task_score", "score"))
}
"""Numbers that it holds for each held-out task."""
WORD = 256
"""Characters of a task's id or category at most: names of tasks, no texts."""


def is_listed(name: str, listed: Mapping[str, str] = METRICS) -> bool:
    """Whether a reply may hold a number of that name."""
    return any(fnmatchcase(name, pattern) for pattern in listed)


def lines(shapes: Mapping[str, tuple[int, ...]], compression: str) -> list[str]:
    """The manifest of a training reply for people: totals, then one line for each array and number."""
    arrays = forms(shapes, compression)
    total = sum(size for _, size in arrays.values())
    head = (
        f"a training reply holds {len(arrays)} arrays ({total:,} bytes), numbers of {len(METRICS)} kinds and the run, "
        "round and client it answers; no prompt, observation, action or trajectory"
    )
    rows = [f"array {name}: {dtype}, {size:,} bytes" for name, (dtype, size) in arrays.items()]
    return [head, *rows, *(f"number {name}: float64, 8 bytes ({what})" for name, what in METRICS.items())]


def evaluation_lines(tasks: int) -> list[str]:
    """The manifest of a reply to an evaluation of that many held-out tasks for people."""
    head = (
        f"a reply to an evaluation holds, for each of at most {tasks} held-out tasks, its id and category (up to {WORD} "
        f"characters each) and {len(OUTCOMES)} scores, numbers of {len(EVALUATION)} kinds and the run and round it answers"
    )
    listed = {**EVALUATION, **{f"{name}, one a task": what for name, what in OUTCOMES.items()}}
    return [head, *(f"evaluation number {name}: float64, 8 bytes ({what})" for name, what in listed.items())]


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


def check_keys(found: Collection[str], listed: Collection[str]) -> None:
    """Refuse a record or a field that no reply has.

    Raises:
        ProtocolError: the first of them, by name.
    """
    if extra := sorted(set(found) - set(listed)):
        raise ProtocolError(f"{extra[0]!r} is not in the manifest of what leaves a client")


def check_evaluation(
    metrics: Mapping[str, float],
    outcomes: Mapping[str, Sequence[float]],
    tasks: Sequence[str],
    types: Sequence[str],
    *,
    limit: int,
) -> None:
    """Refuse a reply to an evaluation of at most `limit` tasks that holds anything but what `evaluation_lines` says.

    Raises:
        ProtocolError: the first thing beyond the manifest; a text is named by its place and never repeated.
    """
    for name in metrics:
        if not is_listed(name, EVALUATION):
            raise ProtocolError(f"{name!r} is not in the manifest of what leaves a client (flwr_agent/manifest.py)")
    check_keys(outcomes, OUTCOMES)
    if len(tasks) > limit:
        raise ProtocolError(f"scores {len(tasks)} tasks, evaluation.tasks={limit}")
    for name, values in {**outcomes, **({"types": types} if types else {})}.items():
        if len(values) != len(tasks):
            raise ProtocolError(f"{name} has {len(values)} entries for {len(tasks)} tasks")
    for name, values in outcomes.items():
        if not all(map(math.isfinite, values)):
            raise ProtocolError(f"{name} has a score that is no finite number")
    _check_words("id", tasks)
    _check_words("category", types)


def _check_words(kind: str, words: Sequence[str]) -> None:
    for number, word in enumerate(words):
        if len(word) > WORD or not word.isprintable():
            raise ProtocolError(
                f"the {kind} of held-out task {number} ({len(word)} characters) is not in the manifest of what leaves a "
                f"client: at most {WORD} printable characters; give the task a shorter one"
            )
