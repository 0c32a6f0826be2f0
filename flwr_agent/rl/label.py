"""Success labels for the hardness partition: a policy plays the whole training pool, in chunks that survive an end."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from envs.base import EnvAdapter, Task
from flwr_agent import writable
from flwr_agent.config import RunConfig
from flwr_agent.errors import ConfigError, DataError
from flwr_agent.rl.episode import StopReason
from flwr_agent.rl.learner import Learner
from flwr_agent.world import to_adapter


def label(
    config: RunConfig, out: Path, *, temperature: float, chunk: int, report: Callable[[int, int], None]
) -> dict[str, Any]:
    """Play every training task once in the standard world with `model.path`, and write a trajectories file to `out`.

    Rollouts are the training's own: the same `Learner`, mode, history, turns and prompts. What is done so far lies in
    `out` + `.part`; a call that finds it there goes on from it.

    Args:
        config: Names environment, prompt style, rollout and policy; its partition plays no part.
        out: The file to write.
        temperature: 0 for greedy answers.
        chunk: Episodes played at a time.
        report: Called with (tasks done, tasks in all).

    Returns:
        The file's metadata.

    Raises:
        ConfigError: the part file is of another policy, environment or rollout.
        DataError: it is no part file.
    """
    adapter, learner = to_adapter(config), Learner(config)
    tasks, facts = adapter.tasks("train"), _facts(config, adapter, learner, temperature)
    part = out.with_name(out.name + ".part")
    part.parent.mkdir(parents=True, exist_ok=True)
    won = _resume(part, facts)
    report(len(won), len(tasks))
    left = [task for task in tasks if task.id not in won]
    for at in range(0, len(left), chunk):
        played = _play(learner, left[at : at + chunk], temperature)
        _append(part, played)
        won |= played
        report(len(won), len(tasks))
    metadata = _write(out, facts, won)
    part.unlink()
    return metadata


def _facts(config: RunConfig, adapter: EnvAdapter, learner: Learner, temperature: float) -> dict[str, Any]:
    """What labels are labels of."""
    return {
        "env": config.env.name,
        "env_fingerprint": adapter.fingerprint(),
        "policy": config.model.path,
        "policy_digest": learner.base_digest,
        "prompt_style": config.prompt.style,
        "rollout": asdict(config.rollout),
        "temperature": temperature,
    }


def _play(learner: Learner, tasks: Sequence[Task], temperature: float) -> dict[str, bool | None]:
    """Task id -> success; None where the environment failed, which labels nothing."""
    episodes = learner.play(tasks, purpose="labels", temperature=temperature)
    return {e.task_id: None if e.stop is StopReason.ENV_ERROR else e.success for e in episodes}


def _resume(part: Path, facts: Mapping[str, Any]) -> dict[str, bool | None]:
    """What the whole lines of a part file hold; starts one where there is none."""
    if not part.exists():
        part.write_text(json.dumps(facts) + "\n", encoding="utf-8")
        return {}
    lines = part.read_bytes().split(b"\n")[:-1]
    try:
        begun, *won = map(json.loads, lines)
        played = dict(won)
    except (ValueError, TypeError) as error:
        fix = f"holds no labels begun by this command ({error}); delete it or choose another --out"
        raise DataError(part, "lines", fix) from error
    if begun != facts:
        fix = "was begun with another policy, environment or rollout; delete it or choose another --out"
        raise ConfigError("out", str(part), fix)
    part.write_bytes(b"\n".join(lines) + b"\n")
    return played


def _append(part: Path, played: Mapping[str, bool | None]) -> None:
    with part.open("a", encoding="utf-8") as file:
        file.writelines(json.dumps(pair) + "\n" for pair in played.items())
        file.flush()
        os.fsync(file.fileno())


def _write(out: Path, facts: Mapping[str, Any], won: Mapping[str, bool | None]) -> dict[str, Any]:
    labels = {task_id: success for task_id, success in won.items() if success is not None}
    counts = {"total_trajectories": len(labels), "successes": sum(labels.values())}
    metadata = {**facts, **counts, "env_errors": len(won) - len(labels)}
    rows = [{"task_info": {"task_id": i}, "traj_info": {"success": success}} for i, success in labels.items()]
    with writable.whole(out) as unfinished:
        unfinished.write_text(json.dumps({"metadata": metadata, "trajectories": rows}, indent=0), encoding="utf-8")
    return metadata
