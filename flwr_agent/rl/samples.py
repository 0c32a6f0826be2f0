"""Credit: from groups of episodes to training rows.

GRPO gives each token a group-normalised advantage (Shao et al. 2024, DeepSeekMath, eq. 3): A = (R - mean of the group) /
(std of the group + epsilon). PPO gives it a reward, from which a critic estimates its advantage (`flwr_agent.rl.gae`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from envs import named
from flwr_agent.config import AlgorithmConfig, RolloutConfig
from flwr_agent.rl.episode import Episode, Group, StopReason, Turn
from flwr_agent.seeds import rng

EPSILON = 1e-6
"""Added to the standard deviation, which is the population's (ddof 0); a group that varies less is one of equals."""


Credit = Callable[[Sequence[tuple[int, float]], AlgorithmConfig], list[float]]
"""`(episode, reward)` of each row of a group, and the objective -> the advantage of each row."""


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
    """`[T]`; 0 where the mask is 0. PPO's are estimated before the first update."""
    rewards: list[float] = field(default_factory=list)
    """`[T]`; undiscounted, at the last token of each turn."""
    continues: bool = False
    """Whether the row goes on where the one before it ended, so that its credit flows back there."""
    episode_turns: int = 1
    """Turns of the episode it is from."""

    @property
    def num_tokens(self) -> int:
        """Tokens that are trained on."""
        return sum(self.mask)


def to_samples(
    groups: Iterable[Group], algorithm: AlgorithmConfig, rollout: RolloutConfig, *, seed: int = 0
) -> list[Sample]:
    """All rows of a step; episodes that the environment failed have none and count in no mean."""
    if algorithm.name == "ppo":  # nothing is compared within a group
        groups = [Group("all", [episode for group in groups for episode in group.episodes])]
    return [sample for group in groups for sample in _group_samples(group, algorithm, rollout, seed)]


def counted(group: Group) -> list[Episode]:
    """Episodes that train: those which the environment did not fail and in which the model said something."""
    return [episode for episode in group.episodes if episode.stop is not StopReason.ENV_ERROR and episode.turns]


def _group_samples(group: Group, algorithm: AlgorithmConfig, rollout: RolloutConfig, seed: int) -> list[Sample]:
    episodes = counted(group)
    returns = [to_return(episode, algorithm) for episode in episodes]
    if algorithm.reward == "shuffled":
        returns = rng(seed, "shuffled", group.task_id).permutation(returns).tolist()
    to_rows = _windowed_rows if rollout.mode == "windowed" else _concat_rows
    rows = [
        (i, row)
        for i, (episode, value) in enumerate(zip(episodes, returns, strict=True))
        for row in to_rows(episode, _turn_rewards(episode, value, algorithm), algorithm)
    ]
    if algorithm.name == "ppo":
        return [row for _, row in rows]
    credit = credit_of(algorithm)
    advantages = credit([(i, sum(row.rewards)) for i, row in rows], algorithm)
    return [replace(row, advantages=[a * m for m in row.mask]) for (_, row), a in zip(rows, advantages, strict=True)]


def to_return(episode: Episode, algorithm: AlgorithmConfig) -> float:
    """Undiscounted training return of an episode, before penalties."""
    value = episode.score if algorithm.reward == "score" else float(episode.success)
    return algorithm.reward_scale * value


def credit_of(algorithm: AlgorithmConfig) -> Credit:
    """What turns the rewards of a group's rows into advantages: `to_advantages`, or a function of one's own.

    Raises:
        ConfigError: there is no such function.
    """
    if algorithm.advantage == "group":
        return to_advantages
    return named.load("algorithm.advantage", algorithm.advantage, algorithm.advantage)


def to_advantages(values: Sequence[tuple[int, float]], algorithm: AlgorithmConfig) -> list[float]:
    """Advantages of a group's rows `(episode, reward)`: centred, scaled and weighted.

    `group_stats` says over what mean and std are taken: `rows`, so that long episodes weigh more, or `episodes`, each
    weighing the same. `episode_weight: equal` scales rows so that every episode pushes alike and the sum of weights
    stays the number of rows. In a group of equal rewards, or of one row, every advantage is exactly 0. With
    `baseline: none` the rewards themselves are the advantages.
    """
    if not values:
        return []
    owners, rewards = np.array([e for e, _ in values]), np.array([r for _, r in values], dtype=np.float64)
    _, inverse, counts = np.unique(owners, return_inverse=True, return_counts=True)
    alike = counts.mean() / counts[inverse]
    weights = alike if algorithm.group_stats == "episodes" else np.ones_like(alike)
    centred = rewards - np.average(rewards, weights=weights)
    std = np.sqrt(np.average(centred**2, weights=weights))
    if algorithm.baseline == "none":
        advantages = rewards
    elif std < EPSILON:
        advantages = np.zeros_like(rewards)
    else:
        advantages = centred / (std + EPSILON) if algorithm.scale_rewards == "std" else centred
    return (advantages * alike if algorithm.episode_weight == "equal" else advantages).tolist()


def _turn_rewards(episode: Episode, value: float, algorithm: AlgorithmConfig) -> list[float]:
    """Reward of each turn: the episode's return, to every turn or (`credit: chained`) to the last one alone.

    A turn whose answer broke the format pays its own penalty.
    """
    last = len(episode.turns) - 1
    return [
        (value if algorithm.credit == "per_row" or i == last else 0.0)
        - (0.0 if turn.is_valid else algorithm.invalid_penalty)
        for i, turn in enumerate(episode.turns)
    ]


def _windowed_rows(episode: Episode, rewards: Sequence[float], algorithm: AlgorithmConfig) -> list[Sample]:
    """One row per turn."""
    chained = algorithm.credit == "chained"
    return [
        Sample(
            turn.prompt_ids,
            turn.response_ids,
            [1] * len(turn.response_ids),
            turn.logprobs,
            [0.0] * len(turn.response_ids),
            _at_end(turn, reward),
            continues=chained and i > 0,
            episode_turns=len(episode.turns),
        )
        for i, (turn, reward) in enumerate(zip(episode.turns, rewards, strict=True))
    ]


def _concat_rows(episode: Episode, rewards: Sequence[float], algorithm: AlgorithmConfig) -> list[Sample]:
    """One row per episode; observations between the answers are masked.

    With credit per row the return and all penalties stand at the last token.
    """
    if algorithm.credit == "per_row":
        penalties = [algorithm.invalid_penalty * (not turn.is_valid) for turn in episode.turns]
        rewards = [0.0] * (len(rewards) - 1) + [rewards[-1] - sum(penalties[:-1])]
    response, mask, logprobs, rewarded = [], [], [], []
    for i, (turn, reward) in enumerate(zip(episode.turns, rewards, strict=True)):
        glue = turn.prompt_ids if i else []
        response += glue + turn.response_ids
        mask += [0] * len(glue) + [1] * len(turn.response_ids)
        logprobs += [0.0] * len(glue) + turn.logprobs
        rewarded += [0.0] * len(glue) + _at_end(turn, reward)
    zeros = [0.0] * len(mask)
    first, num_turns = episode.turns[0].prompt_ids, len(episode.turns)
    return [Sample(first, response, mask, logprobs, zeros, rewarded, episode_turns=num_turns)]


def _at_end(turn: Turn, reward: float) -> list[float]:
    return [0.0] * (len(turn.response_ids) - 1) + [reward]
