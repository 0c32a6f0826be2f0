"""The learning curve of a run as a picture: held-out success by round, with its band."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from flwr_agent.report.statistics import wilson

LEDGER, FILE = "ledger.jsonl", "curve.png"
COLORS = {"sampled": "#1f6feb", "greedy": "#d9822b"}


def draw(folder: Path) -> Path | None:
    """Write `curve.png` beside the ledger of `folder`; None if nothing has been evaluated."""
    lines = [json.loads(line) for line in (folder / LEDGER).read_text(encoding="utf-8").splitlines()]
    points = sorted((line for line in lines if line["kind"] == "evaluation"), key=lambda line: line["round"])
    if not points:
        return None
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.0, 4.2), layout="constrained")
    axes = figure.subplots()
    for mode, color in COLORS.items():
        _curve(axes, points, mode, color)
    clients = [line for line in lines if line["kind"] == "client" and "success" in line["metrics"]]
    axes.plot([c["round"] for c in clients], [c["metrics"]["success"] for c in clients], "o", mfc="none", ms=4, color="0.6",
              label="clients while training (T = 1)")  # fmt: skip
    num_tasks = len(next(iter(points[0]["outcomes"].values())))
    axes.set(
        xlabel="federated round", ylabel="success", ylim=(0, 1), title=f"{folder.name}: {num_tasks} held-out tasks"
    )
    axes.grid(alpha=0.25)
    axes.legend(loc="best", frameon=False)
    figure.savefig(folder / FILE, dpi=130)
    return folder / FILE


def _curve(axes: Any, points: Sequence[Mapping[str, Any]], mode: str, color: str) -> None:
    """Success of one decoding mode with its 95 % Wilson band."""
    scored = [
        (point["round"], point["outcomes"][f"{mode}/success"])
        for point in points
        if f"{mode}/success" in point["outcomes"]
    ]
    if not scored:
        return
    rounds = [round_ for round_, _ in scored]
    bands = [wilson(sum(outcomes), len(outcomes)) for _, outcomes in scored]
    axes.plot(rounds, [sum(o) / len(o) for _, o in scored], "-o", ms=3.5, color=color, label=f"held out, {mode}")
    axes.fill_between(rounds, [low for low, _ in bands], [high for _, high in bands], color=color, alpha=0.15, lw=0)
