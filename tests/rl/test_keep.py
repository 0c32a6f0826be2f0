import json

from envs.base import Task
from flwr_agent.rl.episode import Episode, StopReason, Turn
from flwr_agent.rl.keep import best_and_worst


class Words:
    """Stands in for a tokenizer: token n is the word `wn`."""

    def text(self, ids):
        return " ".join(f"w{i}" for i in ids)


def episode(number: int, score: float, num_turns: int) -> Episode:
    turns = [Turn([number, turn], [9], [-0.1], "look", is_valid=True) for turn in range(num_turns)]
    return Episode(f"t{number}", 0, turns, score=score, success=score == 1.0, stop=StopReason.DONE)


EPISODES = [episode(0, 0.5, 1), episode(1, 1.0, 3), episode(2, 0.0, 2), episode(3, 1.0, 2), episode(4, 0.0, 5)]
TASKS = [Task(f"t{i}", "val", {"category": "even" if i % 2 == 0 else "odd"}) for i in range(5)]


def kept(count: int) -> list[dict]:
    return best_and_worst(EPISODES, TASKS, Words(), mode="greedy", count=count)


def test_scores_rank_first_and_turns_second():
    assert [(e["kind"], e["task"]) for e in kept(2)] == [
        ("best", "t3"),
        ("best", "t1"),
        ("worst", "t2"),
        ("worst", "t4"),
    ]


def test_no_episode_is_kept_twice_and_none_unasked():
    assert [e["task"] for e in kept(4)] == ["t3", "t1", "t0", "t2", "t4"]
    assert kept(0) == []


def test_an_episode_in_words_is_json():
    best = json.loads(json.dumps(kept(1)))[0]
    assert (best["type"], best["score"], best["success"], best["stop"]) == ("odd", 1.0, True, "done")
    assert best["turns"][1] == {"prompt": "w3 w1", "answer": "w9"}
