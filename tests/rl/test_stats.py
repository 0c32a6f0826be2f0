"""What a round says about its episodes."""

from dataclasses import replace

import pytest
from fakes import config

from flwr_agent.rl.episode import Episode, Group, StopReason, Turn
from flwr_agent.rl.samples import Sample
from flwr_agent.rl.stats import advantage_mass, play_stats, rollout_stats

EOS = 2
TURN = Turn([1] * 4, [9, EOS], [-0.1, -0.2], "look", is_valid=True)
CUT = replace(TURN, response_ids=[9, 9], is_valid=False)
LONG = replace(TURN, prompt_ids=[1] * 8)


def played() -> list[Episode]:
    return [
        Episode("t", 0, [TURN, CUT], score=1.0, success=True, stop=StopReason.DONE),
        Episode("t", 1, [TURN, TURN, LONG], score=0.5, stop=StopReason.MAX_TURNS),
        Episode("t", 2, [LONG], stop=StopReason.CONTEXT_FULL),
        Episode("t", 3, [], stop=StopReason.ENV_ERROR),
    ]


def test_truncations_are_counted_by_their_cause():
    found = play_stats(played(), config(rollout__max_prompt_tokens=8).rollout, {EOS})
    assert found == pytest.approx(
        {
            "episodes": 4,
            "success": 1 / 4,
            "task_score": 1.5 / 4,
            "turns": 6 / 4,
            "valid_actions": 5 / 6,
            "env_errors": 1,
            "truncated": 2 / 4,
            "truncated/turns": 1 / 4,
            "truncated/context": 1 / 4,
            "truncated/answer": 1 / 6,
            "truncated/prompt": 2 / 6,
        }
    )


def test_a_conversation_has_no_prompt_to_cut_after_its_first():
    rollout = config(rollout__max_prompt_tokens=8, rollout__mode="concat").rollout
    assert play_stats(played(), rollout, {EOS})["truncated/prompt"] == 0


def test_the_same_names_whatever_happened():
    rollout = config().rollout
    nothing = [Episode("t", 0, [], stop=StopReason.ENV_ERROR)]
    assert play_stats(nothing, rollout, {EOS}).keys() == play_stats(played(), rollout, {EOS}).keys()


def test_what_the_environment_measures_is_averaged_over_episodes():
    episodes = [replace(e, measures={"odd": 1.0}) if i == 1 else e for i, e in enumerate(played())]
    assert play_stats(episodes, config().rollout, {EOS})["env/odd"] == 1 / 4


def test_groups_of_equal_returns_are_those_that_teach_nothing():
    run = config(algorithm__reward_scale=10.0)
    alike = [Episode("u", i, [TURN], score=0.0, stop=StopReason.DONE) for i in range(2)]
    found = rollout_stats([Group("t", played()), Group("u", alike)], [], run)
    assert found["zero_std_groups"] == 1 / 2
    assert found["reward"] == pytest.approx(10 / 5)


def test_advantage_mass_falls_on_the_thirds_of_the_longest_length():
    def row(turns: int, advantage: float) -> Sample:
        return Sample([1], [9, EOS], [1, 1], [0.0, 0.0], [advantage, advantage], episode_turns=turns)

    found = advantage_mass([row(1, 1.0), row(5, -2.0), row(6, 1.0), row(15, -4.0)], max_turns=15)
    assert found == {"advantage_mass/short": 3 / 8, "advantage_mass/middle": 1 / 8, "advantage_mass/long": 4 / 8}
    assert set(advantage_mass([], max_turns=15).values()) == {0.0}
