"""Credit: from groups of episodes to training rows with a group-normalised advantage per token.

GRPO (Shao et al. 2024, DeepSeekMath, eq. 3): A = (R - mean of the group) / (std of the group + epsilon).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from flwr_agent.config import AlgorithmConfig, RolloutConfig
from flwr_agent.rl.episode import Episode, Group, StopReason
from flwr_agent.seeds import rng

EPSILON = 1e-6
"""Keeps a group of equal returns at advantage zero; the standard deviation is the population's (ddof 0)."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One training row: what the model was shown and what it said.

    Example (windowed, an answer of two tokens, a won episode among lost ones):
        >>> Sample([1, 5, 6], [9, 2], [1, 1], [-0.1, -0.3], [1.7, 1.7]).num_tokens
        2
    """

    prompt_ids: list[int]
    response_ids: list[int]
    """`[T]`; in concat mode the observations between answers are inside."""
    mask: list[int]
    """`[T]`; 1 where the token is the model's own."""
    logprobs: list[float]
    """`[T]`; the sampler's, 0 where the mask is 0."""
    advantages: list[float]
    """`[T]`; 0 where the mask is 0."""

    @property
    def num_tokens(self) -> int:
        """Tokens that are trained on."""
        return sum(self.mask)


@dataclass(frozen=True, slots=True)
class _Row:
    """A row before its advantage is known."""

    episode: int
    prompt_ids: list[int]
    response_ids: list[int]
    mask: list[int]
    logprobs: list[float]
    reward: float


def to_samples(
    groups: Iterable[Group], algorithm: AlgorithmConfig, rollout: RolloutConfig, *, seed: int = 0
) -> list[Sample]:
    """All rows of a step; episodes that the environment failed carry none and count in no mean."""
    return [sample for group in groups for sample in _group_samples(group, algorithm, rollout, seed)]


def _group_samples(group: Group, algorithm: AlgorithmConfig, rollout: RolloutConfig, seed: int) -> list[Sample]:
    episodes = [e for e in group.episodes if e.stop is not StopReason.ENV_ERROR and e.turns]
    returns = [to_return(episode, algorithm) for episode in episodes]
    if algorithm.reward == "shuffled":
        returns = rng(seed, "shuffled", group.task_id).permutation(returns).tolist()
    to_rows = _windowed_rows if rollout.mode == "windowed" else _concat_rows
    rows = [row for i, (e, r) in enumerate(zip(episodes, returns, strict=True)) for row in to_rows(i, e, r, algorithm)]
    advantages = normalise([(row.episode, row.reward) for row in rows], algorithm)
    weights = _episode_weights([row.episode for row in rows], algorithm)
    return [
        Sample(row.prompt_ids, row.response_ids, row.mask, row.logprobs, [a * w * m for m in row.mask])
        for row, a, w in zip(rows, advantages, weights, strict=True)
    ]


def to_return(episode: Episode, algorithm: AlgorithmConfig) -> float:
    """Undiscounted training return of an episode, before penalties."""
    value = episode.score if algorithm.reward == "score" else float(episode.success)
    return algorithm.reward_scale * value


def normalise(values: Sequence[tuple[int, float]], algorithm: AlgorithmConfig) -> list[float]:
    """Group-normalised advantages of rows `(episode, reward)`.

    `group_stats: rows` takes mean and std over all rows (long episodes weigh more), `episodes` over the mean reward
    of each episode. A group with one row or one value has advantage 0.
    """
    rewards = np.array([reward for _, reward in values], dtype=np.float64)
    if rewards.size == 0:
        return []
    pool = rewards
    if algorithm.group_stats == "episodes":
        owner = np.array([episode for episode, _ in values])
        pool = np.array([rewards[owner == e].mean() for e in np.unique(owner)])
    centred = rewards - pool.mean() if algorithm.baseline == "group" else rewards
    return (centred / (pool.std() + EPSILON) if algorithm.scale_rewards == "std" else centred).tolist()


def _episode_weights(owners: Sequence[int], algorithm: AlgorithmConfig) -> list[float]:
    """1 per row, or weights under which every episode of the group has the same total and the sum stays the same."""
    if algorithm.episode_weight == "rows" or not owners:
        return [1.0] * len(owners)
    counts = {owner: owners.count(owner) for owner in set(owners)}
    mean = len(owners) / len(counts)
    return [mean / counts[owner] for owner in owners]


def _windowed_rows(index: int, episode: Episode, value: float, algorithm: AlgorithmConfig) -> list[_Row]:
    """One row per turn; each carries the episode's whole return, less the penalty of its own broken format."""
    return [
        _Row(
            index,
            turn.prompt_ids,
            turn.response_ids,
            [1] * len(turn.response_ids),
            turn.logprobs,
            value - (0.0 if turn.is_valid else algorithm.invalid_penalty),
        )
        for turn in episode.turns
    ]


def _concat_rows(index: int, episode: Episode, value: float, algorithm: AlgorithmConfig) -> list[_Row]:
    """One row per episode; observations between the answers are masked."""
    first, *later = episode.turns
    response, mask, logprobs = list(first.response_ids), [1] * len(first.response_ids), list(first.logprobs)
    for turn in later:
        response += turn.prompt_ids + turn.response_ids
        mask += [0] * len(turn.prompt_ids) + [1] * len(turn.response_ids)
        logprobs += [0.0] * len(turn.prompt_ids) + turn.logprobs
    penalty = algorithm.invalid_penalty * sum(not turn.is_valid for turn in episode.turns)
    return [_Row(index, first.prompt_ids, response, mask, logprobs, value - penalty)]
