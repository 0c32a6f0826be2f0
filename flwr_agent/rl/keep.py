"""The best and the worst episodes of an evaluation in words, for people who asked for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from envs.base import Task
from flwr_agent.rl.chat import Chat
from flwr_agent.rl.episode import Episode


def best_and_worst(
    episodes: Sequence[Episode], tasks: Sequence[Task], chat: Chat, *, mode: str, count: int
) -> list[dict[str, Any]]:
    """Up to `count` episodes from either end, JSON-serialisable, best first.

    Higher scores are better, then fewer turns; of equals the earlier task's is better.
    """
    order = sorted(range(len(episodes)), key=lambda i: (-episodes[i].score, len(episodes[i].turns), i))
    best, rest = order[:count], order[count:]
    worst = rest[-count:] if count else []
    return [
        _in_words(episodes[i], tasks[i], chat) | {"kind": kind, "mode": mode}
        for kind, picked in (("best", best), ("worst", worst))
        for i in picked
    ]


def _in_words(episode: Episode, task: Task, chat: Chat) -> dict[str, Any]:
    return {
        "task": task.id,
        "type": str(task.meta.get("category", "")),
        "score": episode.score,
        "success": episode.success,
        "stop": str(episode.stop),
        "turns": [{"prompt": chat.text(t.prompt_ids), "answer": chat.text(t.response_ids)} for t in episode.turns],
    }
