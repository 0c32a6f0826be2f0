"""`round_R/client_C/json_logs/metrics.json`: what each client measured, in the form that published plotting tools read."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from server_app.ledger import Line

FILE = "round_{round}/client_{client}/json_logs/metrics.json"
PUBLISHED = {
    "reward": "critic/rewards/mean",
    "task_score": "critic/score/mean",
    "success": "episode/success_rate",
    "entropy": "actor/entropy",
    "kl": "actor/kl_loss",
    "grad_norm": "actor/grad_norm",
    "clip_fraction": "actor/pg_clipfrac",
    "loss": "actor/pg_loss",
    "critic/loss": "critic/vf_loss",
    "critic/clip_fraction": "critic/vf_clipfrac",
    "critic/explained_variance": "critic/vf_explained_var",
    "critic/value": "critic/values/mean",
    "critic/return": "critic/returns/mean",
}
"""Our name -> the published one; the others keep theirs."""


def write(folder: Path, lines: Sequence[Line], *, epochs: int) -> None:
    """Write a file for each client-round whose update counts: one entry, the means over its steps.

    Args:
        folder: of the run.
        lines: of its ledger.
        epochs: steps of a client in one round; an entry carries the number of the last one.
    """
    for line in lines:
        if line["kind"] == "client" and line["status"] == "accepted":
            path = folder / FILE.format(round=line["round"], client=line["client_id"])
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps([to_entry(line, epochs)]), encoding="utf-8")


def to_entry(line: Line, epochs: int) -> dict[str, Any]:
    """`{"step", "metrics"}` of a client line.

    Example:
        >>> to_entry({"round": 2, "num_examples": 8, "metrics": {"reward": 1.5}}, epochs=3)
        {'step': 3, 'metrics': {'critic/rewards/mean': 1.5, 'rows_trained': 8.0}}
    """
    metrics = {PUBLISHED.get(name, name): value for name, value in line["metrics"].items() if value is not None}
    if line["metrics"].get("rows"):
        tokens = line["metrics"].get("prompt_tokens", 0.0) + line["metrics"].get("response_tokens", 0.0)
        metrics["global_seqlen/mean"] = tokens / line["metrics"]["rows"]
    return {"step": epochs, "metrics": {**metrics, "rows_trained": float(line["num_examples"])}}
