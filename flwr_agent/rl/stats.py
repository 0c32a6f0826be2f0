"""What a round says about its episodes and rows, beside what its optimizer steps measured."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import numpy as np

from flwr_agent.config import RolloutConfig, RunConfig
from flwr_agent.rl.episode import Episode, Group, StopReason
from flwr_agent.rl.samples import Sample, counted, to_return

LENGTHS = ("short", "middle", "long")
"""Thirds of `rollout.max_turns`."""


def play_stats(episodes: Sequence[Episode], rollout: RolloutConfig, eos_ids: Collection[int]) -> dict[str, float]:
    """Success, length, format and why episodes, answers and prompts were cut; shares but for counts.

    `truncated/answer` is of answers that met `max_new_tokens` before an end token, `truncated/prompt` of windowed prompts
    as long as `max_prompt_tokens`.
    """
    turns = [turn for episode in episodes for turn in episode.turns]
    measured = sorted({name for episode in episodes for name in episode.measures})
    width = rollout.max_prompt_tokens if rollout.mode == "windowed" else None
    return {
        "episodes": float(len(episodes)),
        "success": _share(e.success for e in episodes),
        "task_score": float(np.mean([e.score for e in episodes])),
        "turns": len(turns) / len(episodes),
        "valid_actions": _share(turn.is_valid for turn in turns),
        "env_errors": float(sum(e.stop is StopReason.ENV_ERROR for e in episodes)),
        "truncated": _share(e.stop in (StopReason.MAX_TURNS, StopReason.CONTEXT_FULL) for e in episodes),
        "truncated/turns": _share(e.stop is StopReason.MAX_TURNS for e in episodes),
        "truncated/context": _share(e.stop is StopReason.CONTEXT_FULL for e in episodes),
        "truncated/answer": _share(t.response_ids[-1] not in eos_ids for t in turns),
        "truncated/prompt": _share(len(turn.prompt_ids) == width for turn in turns),
        **{f"env/{name}": float(np.mean([e.measures.get(name, 0.0) for e in episodes])) for name in measured},
    }


def rollout_stats(groups: Sequence[Group], samples: Sequence[Sample], config: RunConfig) -> dict[str, float]:
    """Returns and tokens of one rollout; where episodes are compared, also the share of groups without a difference."""
    returns = [[to_return(e, config.algorithm) for e in counted(group)] for group in groups]
    alike = {"zero_std_groups": _share(len(set(values)) < 2 for values in returns)}
    return (alike if config.algorithm.name == "grpo" else {}) | {
        "reward": float(np.mean([value for values in returns for value in values] or [0.0])),
        "prompt_tokens": float(sum(len(s.prompt_ids) for s in samples)),
        "response_tokens": float(sum(s.num_tokens for s in samples)),
    }


def advantage_mass(samples: Sequence[Sample], max_turns: int) -> dict[str, float]:
    """Share of sum |A| over the model's tokens that falls on episodes of each third of the longest length.

    A policy that is pushed by its long failures alone shows here.
    """
    mass = dict.fromkeys(LENGTHS, 0.0)
    for sample in samples:
        third = min(3 * (sample.episode_turns - 1) // max_turns, 2)
        mass[LENGTHS[third]] += sum(map(abs, sample.advantages))
    total = sum(mass.values())
    return {f"advantage_mass/{name}": value / total if total else 0.0 for name, value in mass.items()}


def _share(found: Iterable[bool]) -> float:
    values = list(found)
    return sum(values) / len(values) if values else 0.0
