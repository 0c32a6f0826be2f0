"""Run folders as a federation would leave them, with figures that a test can check by hand."""

import json
from pathlib import Path

from flwr_agent.config import resolve

TYPES = ("pick", "heat", "pick", "heat", "pick", "cool", "pick", "heat")


def evaluation(round_: int, num_solved: int) -> dict:
    """The first `num_solved` of eight tasks are solved sampled, one less greedily."""
    scored = {
        mode: [float(i < n) for i in range(8)] for mode, n in (("sampled", num_solved), ("greedy", num_solved - 1))
    }
    outcomes = {f"{mode}/{name}": values for mode, values in scored.items() for name in ("success", "task_score")}
    metrics = {"success": num_solved / 8, "greedy/success": (num_solved - 1) / 8}
    tasks = [f"val-{i}" for i in range(8)]
    return {
        "kind": "evaluation",
        "round": round_,
        "metrics": metrics,
        "outcomes": outcomes,
        "tasks": tasks,
        "types": TYPES,
        "seconds": 2.0,
    }


def client(round_: int, client_id: int, success: float, *, status: str = "accepted", reason: str = "") -> dict:
    """A client that played 4 turns an episode and said 100 tokens a step."""
    metrics = {
        "success": success,
        "reward": 10 * success,
        "kl": 0.01 * round_,
        "entropy": 1.0 / round_,
        "sampler_gap": 1e-4,
        "grad_norm": 0.5,
        "update_norm": 0.25,
        "zero_std_groups": 0.5,
        "turns": 4.0,
        "rows": 10.0,
        "rows_dropped": 2.0,
        "prompt_tokens": 900.0,
        "response_tokens": 100.0,
        "tokens_trained": 80.0,
        "updates": 1.0,
        "env_errors": 0.0,
        "time/rollout": 3.0,
        "time/update": 1.0,
    }
    return {
        "kind": "client",
        "round": round_,
        "client_id": client_id,
        "status": status,
        "reason": reason,
        "num_examples": 20,
        "metrics": metrics if status == "accepted" else {},
    }


def finished(round_: int) -> dict:
    return {
        "kind": "round",
        "round": round_,
        "clients": [0, 1],
        "metrics": {"reward": 5.0, "update_cosine": 0.5},
        "seconds": {"place": 0.1, "send": 0.1, "receive_and_fold": 4.0, "digest": 0.1},
        "payload_bytes": {"sent": 2_000_000, "received": 1_000_000},
        "digest": f"digest-{round_}",
    }


def run_folder(folder: Path, *extra: dict, solved: tuple[int, ...] = (2, 4, 6), **keys: object) -> Path:
    """Write a run of two clients in which round r solves `solved[r]` of eight tasks."""
    config = resolve({"federation.epochs_per_round": 2, **{key.replace("__", "."): v for key, v in keys.items()}})
    lines: list[dict] = [{"kind": "ledger", "version": 1}, evaluation(0, solved[0])]
    for round_, num_solved in enumerate(solved[1:], 1):
        lines += [client(round_, 0, 0.2 * round_), client(round_, 1, 0.1 * round_), finished(round_)]
        lines += [{"kind": "checkpoint", "round": round_, "seconds": 0.1}, evaluation(round_, num_solved)]
    folder.mkdir(parents=True)
    facts = {"fingerprint": config.fingerprint(), "config": config.flat()}
    (folder / "config.json").write_text(json.dumps(facts), encoding="utf-8")
    text = "".join(json.dumps(line) + "\n" for line in [*lines, *extra])
    (folder / "ledger.jsonl").write_text(text, encoding="utf-8")
    return folder
