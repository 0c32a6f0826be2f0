"""`federated_summary.json`: a run at a glance, made from its ledger alone."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from flwr_agent.arrays import replace
from flwr_agent.config import RunConfig
from flwr_agent.lines import saved
from flwr_agent.modes import LOCAL
from server_app.checkpoint import name_of
from server_app.ledger import Line

FILE = "federated_summary.json"


def write(folder: Path, config: RunConfig, lines: Sequence[Line]) -> None:
    """Write the summary of what the ledger holds now, finished or not."""
    tmp = folder / (FILE + ".tmp")
    tmp.write_text(json.dumps(summary(folder, config, lines), indent=1), encoding="utf-8")
    replace(tmp, folder / FILE)


def summary(folder: Path, config: RunConfig, lines: Sequence[Line]) -> dict[str, Any]:
    """The summary as a dict; `loop_completed` only if the last round of the configuration is saved."""
    fed = config.federation
    last = saved(lines)
    rounds = [line for line in lines if line["kind"] == "round" and line["round"] <= last]
    resumes = [line for line in lines if line["kind"] == "resume"]
    return {
        "total_clients": fed.total_clients,
        "clients_per_round": fed.clients_per_round,
        "total_rounds": fed.rounds,
        "epochs_per_round": fed.epochs_per_round,
        "env_kind": config.env.name,
        "mode": fed.mode,
        **({"local_client_id": fed.local_client} if fed.mode == LOCAL else {}),
        "strategy": config.strategy.name,
        "adv_estimator": config.algorithm.name,
        "partition_strategy": config.partition.strategy,
        "base_model": config.model.path,
        "ref_anchor": config.algorithm.kl_anchor,
        "ref_model_path": config.model.path,
        "fingerprint": config.fingerprint(),
        **({"resumed_from_round": resumes[-1]["round"]} if resumes else {}),
        "loop_completed": last == fed.rounds,
        "final_model": str(folder / name_of(last)),
        **_critic(folder, lines, last),
        "val_curve": [_point(line) for line in lines if line["kind"] == "evaluation"],
        "client_curve": [_client(line) for line in lines if line["kind"] == "client" and line["status"] == "accepted"],
        "rounds": [_round(folder, line, resumes) for line in rounds],
    }


def _critic(folder: Path, lines: Sequence[Line], last: int) -> dict[str, Any]:
    """Where PPO's critic came from and lies; it is in the same file as the policy."""
    starts = [line for line in lines if line["kind"] == "critic"]
    if not starts:
        return {}
    start = {"critic_init": starts[0]["init"], "start_critic": starts[0]["path"]}
    return {**start, "final_critic": str(folder / name_of(last))}


def _point(line: Line) -> dict[str, Any]:
    metrics, outcomes = line["metrics"], line["outcomes"]
    names = {"success": "success_rate", "reward": "reward_mean", "task_score": "task_score"}
    names |= {f"greedy/{name}": f"greedy_{new}" for name, new in names.items()}
    return {
        "round": line["round"],
        "model": "aggregated" if line["round"] else "base",
        "n": max((len(values) for values in outcomes.values()), default=0),
        **{new: metrics[name] for name, new in names.items() if name in metrics},
        **({"by_type": by_type(line)} if line.get("types") else {}),
        **_clients(line),
    }


def _clients(line: Line) -> dict[str, Any]:
    """Each client's success on tasks of its own, and the lowest, where clients play their own."""
    if "clients" not in line:
        return {}
    own = {client: scores["success"] for client, scores in line["clients"].items()}
    return {"worst_client_success_rate": min(own.values()), "client_success_rate": own}


def by_type(line: Line) -> dict[str, dict[str, float]]:
    """Task type -> its number of tasks and its success in each mode: one pass over the tasks, cut by their type.

    Example:
        >>> by_type({"types": ["a", "b", "a"], "outcomes": {"sampled/success": [1.0, 0.0, 0.0]}})
        {'a': {'n': 2, 'success_rate': 0.5}, 'b': {'n': 1, 'success_rate': 0.0}}
    """
    names = {"sampled/success": "success_rate", "greedy/success": "greedy_success_rate"}
    found: dict[str, dict[str, float]] = {}
    for kind in sorted(set(line["types"])):
        at = [place for place, other in enumerate(line["types"]) if other == kind]
        scored = {new: line["outcomes"][name] for name, new in names.items() if name in line["outcomes"]}
        found[kind] = {"n": len(at)} | {new: sum(one[i] for i in at) / len(at) for new, one in scored.items()}
    return found


def _client(line: Line) -> dict[str, Any]:
    names = {"success": "success_rate", "reward": "reward_mean", "task_score": "task_score"}
    found = {new: line["metrics"][name] for name, new in names.items() if name in line["metrics"]}
    return {"round": line["round"], "client": line["client_id"], "n": line["num_examples"], **found}


def _round(folder: Path, line: Line, resumes: Sequence[Line]) -> dict[str, Any]:
    number = line["round"]
    kept = folder / name_of(number)
    before = [r["accepted"] for r in resumes if r["round"] + 1 == number and r["accepted"]]
    return {
        "round": number,
        "clients": line["clients"],
        "started_from": name_of(number - 1),
        "aggregated_actor": str(kept) if kept.is_dir() else None,
        "digest": line["digest"],
        **({"clients_before_resume": before[-1]} if before and before[-1] != line["clients"] else {}),
    }
