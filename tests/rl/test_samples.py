"""From groups of episodes to rows with advantages."""

from collections.abc import Sequence

import numpy as np
import pytest
from fakes import config
from hypothesis import given
from hypothesis import strategies as st

from flwr_agent.rl.episode import Episode, Group, StopReason, Turn
from flwr_agent.rl.samples import EPSILON, to_samples


def episode(valid: Sequence[bool], *, won: bool = False, score: float = 0.0, index: int = 0, **fields) -> Episode:
    turns = [Turn([1, 10 + t], [20 + t, 2], [-0.5, -0.25], "", v) for t, v in enumerate(valid)]
    return Episode("task", index, turns, score=score or float(won), success=won, **fields)


def rows_of(*episodes: Episode, seed: int = 0, **keys):
    run = config(**keys)
    return to_samples([Group("task", list(episodes))], run.algorithm, run.rollout, seed=seed)


def advantages(*episodes: Episode, **keys) -> list[float]:
    return [max(row.advantages, key=abs) for row in rows_of(*episodes, **keys)]


def owners(episodes: Sequence[Episode]) -> np.ndarray:
    return np.repeat(np.arange(len(episodes)), [len(e.turns) for e in episodes])


groups = st.lists(
    st.builds(
        lambda valid, won: episode(valid, won=won), st.lists(st.booleans(), min_size=1, max_size=5), st.booleans()
    ),
    min_size=1,
    max_size=6,
)
choices = st.fixed_dictionaries(
    {
        "algorithm__group_stats": st.sampled_from(["rows", "episodes"]),
        "algorithm__scale_rewards": st.sampled_from(["std", "none"]),
        "algorithm__episode_weight": st.sampled_from(["rows", "equal"]),
        "algorithm__invalid_penalty": st.sampled_from([0.0, 0.1, 3.0]),
    }
)


def test_rows_count_each_turn_and_episodes_each_episode():
    """A win of one turn among losses of three and two: rewards 10, 0 0 0, 0 0."""
    played = episode([True], won=True), episode([True] * 3), episode([True] * 2)
    by_rows = np.array([10, 0, 0, 0, 0, 0])
    expected = (by_rows - by_rows.mean()) / (by_rows.std(ddof=0) + EPSILON)
    assert advantages(*played, algorithm__group_stats="rows") == pytest.approx(expected)
    returns = np.array([10, 0, 0])
    per_episode = (returns - returns.mean()) / (returns.std(ddof=0) + EPSILON)
    assert advantages(*played, algorithm__group_stats="episodes") == pytest.approx(np.repeat(per_episode, [1, 3, 2]))


def test_a_broken_format_costs_its_own_row_when_windowed():
    """Rewards 10 9.9 and 0: mean 6.633, standard deviation 4.690."""
    found = advantages(episode([True, False], won=True), episode([True]))
    rewards = np.array([10, 9.9, 0])
    assert found == pytest.approx((rewards - rewards.mean()) / (rewards.std() + EPSILON))
    assert found[0] > found[1]


def test_a_broken_format_costs_the_episode_for_each_turn_when_concatenated():
    found = advantages(episode([False, False], won=True), episode([True]), rollout__mode="concat")
    rewards = np.array([9.8, 0])
    assert found == pytest.approx((rewards - rewards.mean()) / (rewards.std() + EPSILON))


def test_unscaled_advantages_are_centred_rewards():
    played = episode([True], won=True), episode([True]), episode([True] * 2)
    assert advantages(*played, algorithm__scale_rewards="none") == pytest.approx([7.5, -2.5, -2.5, -2.5])


@pytest.mark.parametrize("scale", ["std", "none"])
@pytest.mark.parametrize("stats", ["rows", "episodes"])
@pytest.mark.parametrize(
    "played",
    [
        [episode([True], won=True)],
        [episode([True, True], won=True)] * 3,
        [episode([True])] * 4,
        [episode([False] * 2), episode([False])],
        [episode([True], score=0.7)] * 3,
    ],
)
def test_one_row_or_equal_rewards_give_advantages_of_exactly_zero(played, stats, scale):
    keys = {"algorithm__group_stats": stats, "algorithm__scale_rewards": scale, "algorithm__reward": "score"}
    assert set(advantages(*played, **keys)) == {0.0}


@given(groups, choices)
def test_the_rows_of_a_group_sum_to_zero_under_the_weights_of_its_mean(played, keys):
    """Rows weigh alike in the mean of `rows`; in that of `episodes` each episode's rows share one weight."""
    found, who = np.array(advantages(*played, **keys)), owners(played)
    counts = np.bincount(who)
    is_alike = keys["algorithm__group_stats"] == "episodes"
    if keys["algorithm__episode_weight"] == "equal":
        found = found / (counts.mean() / counts[who])
    weights = 1 / counts[who] if is_alike else np.ones(len(who))
    assert np.sum(weights * found) == pytest.approx(0, abs=1e-5)


@given(groups, choices)
def test_no_advantage_exceeds_what_one_outlier_could_have(played, keys):
    """|A| <= sqrt(rows of a group) times its weight, however small the spread: penalties never blow up."""
    if keys["algorithm__scale_rewards"] == "std":
        found, counts = np.abs(advantages(*played, **keys)), [len(e.turns) for e in played]
        bound = np.sqrt(len(played) * max(counts))
        assert found.max() <= bound * np.mean(counts) * (1 + 1e-6)


@given(groups, choices)
def test_equal_episode_weight_gives_every_episode_the_same_push_and_keeps_the_sum(played, keys):
    counts = np.array([len(e.turns) for e in played])
    plain = np.array(advantages(*played, **keys | {"algorithm__episode_weight": "rows"}))
    equal = np.array(advantages(*played, **keys | {"algorithm__episode_weight": "equal"}))
    weights = counts.mean() / counts[owners(played)]
    assert equal == pytest.approx(plain * weights)
    assert np.bincount(owners(played), weights) == pytest.approx(np.full(len(played), counts.mean()))


def test_an_episode_the_environment_failed_has_no_rows_and_counts_in_no_mean():
    played = [episode([True], won=True), episode([True, False])]
    failed = episode([True] * 3, won=True, stop=StopReason.ENV_ERROR, error="boom")
    silent = episode([])
    assert rows_of(*played, failed, silent) == rows_of(*played)
    assert rows_of(failed) == []


def test_groups_do_not_meet():
    run = config()
    first, second = Group("a", [episode([True], won=True), episode([True])]), Group("b", [episode([True])] * 2)
    both = to_samples([first, second], run.algorithm, run.rollout)
    assert both == [
        *to_samples([first], run.algorithm, run.rollout),
        *to_samples([second], run.algorithm, run.rollout),
    ]


def test_windowed_rows_are_the_turns_as_they_were_generated():
    rows = rows_of(episode([True, True], won=True), episode([True]))
    assert [(row.prompt_ids, row.response_ids, row.mask, row.logprobs) for row in rows[:2]] == [
        ([1, 10], [20, 2], [1, 1], [-0.5, -0.25]),
        ([1, 11], [21, 2], [1, 1], [-0.5, -0.25]),
    ]


def test_a_concatenated_row_masks_what_stands_between_answers():
    row, _ = rows_of(episode([True, True], won=True), episode([True]), rollout__mode="concat")
    assert row.prompt_ids == [1, 10]
    assert row.response_ids == [20, 2, 1, 11, 21, 2]
    assert row.mask == [1, 1, 0, 0, 1, 1]
    assert row.logprobs == [-0.5, -0.25, 0.0, 0.0, -0.5, -0.25]
    assert row.num_tokens == 4
    a = row.advantages[0]
    assert a > 0
    assert row.advantages == [a, a, 0.0, 0.0, a, a]


def test_the_same_episodes_hold_the_same_tokens_in_both_modes():
    played = episode([True] * 3, won=True), episode([True, False])
    windowed, concat = rows_of(*played), rows_of(*played, rollout__mode="concat")
    assert sum(row.num_tokens for row in windowed) == sum(row.num_tokens for row in concat)


def test_the_score_may_be_the_reward():
    played = episode([True], score=0.25), episode([True], score=0.75)
    assert advantages(*played, algorithm__reward="score") == pytest.approx([-1, 1], rel=1e-6)
    assert advantages(*played) == [0.0, 0.0]


def test_shuffled_rewards_keep_their_values_and_lose_their_owners():
    played = [episode([True], won=i < 3, index=i) for i in range(8)]
    honest = advantages(*played)
    shuffled = [advantages(*played, algorithm__reward="shuffled", seed=seed) for seed in range(40)]
    assert all(sorted(found) == pytest.approx(sorted(honest)) for found in shuffled)
    assert shuffled[0] == advantages(*played, algorithm__reward="shuffled", seed=0)
    share_of_wins = np.mean(np.array(shuffled) > 0, axis=0)
    assert np.all(np.abs(share_of_wins - 3 / 8) < 0.3)


@pytest.mark.parametrize("weight", ["rows", "equal"])
def test_without_a_baseline_a_winner_is_imitated_and_a_loser_is_no_signal(weight):
    keys = {"algorithm__baseline": "none", "algorithm__scale_rewards": "none", "algorithm__episode_weight": weight}
    alike = advantages(episode([True], won=True), episode([True], won=True), **keys)
    assert alike == [10.0, 10.0]
    mixed = advantages(episode([True] * 3, won=True), episode([True]), **keys)
    assert mixed == pytest.approx([10.0 * (2 / 3 if weight == "equal" else 1)] * 3 + [0.0])
