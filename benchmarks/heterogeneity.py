"""The picture of docs/heterogeneity.md, drawn from partitions alone: `python -m benchmarks.heterogeneity`."""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from envs.base import Shard, Task
from envs.minihouse.adapter import MiniHouse
from envs.partition import shard
from envs.partition.catalog import catalog
from envs.webshop.adapter import WebShop
from flwr_agent.matrix.recipe import write_drawn_labels

CLIENTS = 20
DIVERGENCES = (0.0, 0.3, 0.7, 1.0)
COLORS = ("#1f6feb", "#d9822b", "#2f9e6e", "#a04bc2", "#c9384b", "#6b7785")


def main(path: Path) -> None:
    """Draw the panels to `path`."""
    goals = WebShop().tasks("train")
    figure = Figure(figsize=(10, 8.4), layout="constrained")
    panels = figure.subplots(3, 2).ravel()
    for panel, omega in zip(panels[:2], (0.01, 0.99), strict=True):
        _mix(panel, goals, omega)
    _sizes(panels[2], goals)
    _easy(panels[3], goals)
    _likeness(panels[4], goals, "catalog_split", "products that two shops share", keep_ratio=0.7, of=_products)
    houses = MiniHouse().tasks("train")
    _likeness(panels[5], houses, "scene_disjoint", "scenes that two clients share", scenes_per_client=8, of=_scenes)
    figure.savefig(path, dpi=110)


def shards(tasks: Sequence[Task], strategy: str, **knobs: Any) -> list[Shard]:
    """Every client's shard."""
    return [shard(tasks, client, CLIENTS, strategy, tasks_per_client=100, **knobs) for client in range(CLIENTS)]


def _mix(panel: Axes, tasks: Sequence[Task], omega: float) -> None:
    kinds = {task.id: str(task.meta["category"]) for task in tasks}
    counts = [Counter(kinds[i] for i in one.task_ids) for one in shards(tasks, "preference", omega=omega)]
    below = np.zeros(CLIENTS)
    for kind, color in zip(sorted(set(kinds.values())), COLORS, strict=False):
        heights = np.array([count[kind] / count.total() for count in counts])
        panel.bar(range(CLIENTS), heights, bottom=below, color=color, width=0.95, label=kind)
        below += heights
    panel.xaxis.set_major_locator(MaxNLocator(integer=True))
    panel.set(title=f"preference, omega = {omega}: category mix", xlabel="client", ylim=(0, 1))
    if omega < 0.5:
        panel.legend(ncols=5, fontsize=7, loc="lower center", framealpha=0.9)


def _sizes(panel: Axes, tasks: Sequence[Task]) -> None:
    for size_std, color in ((256.0, COLORS[0]), (1.0, COLORS[4])):
        found = shards(tasks, "coverage", size_std=size_std, size_mean=500, size_max=1000)
        panel.plot(
            sorted(len(one.task_ids) for one in found), "o-", ms=3, color=color, label=f"size_std = {size_std:g}"
        )
    panel.xaxis.set_major_locator(MaxNLocator(integer=True))
    panel.set(title="coverage: tasks of a client, sorted", xlabel="client", ylim=(0, 1050))
    panel.legend(frameon=False, fontsize=8)


def _easy(panel: Axes, tasks: Sequence[Task]) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        labels = Path(scratch) / "labels.json"
        write_drawn_labels(labels, list(tasks))
        easy = _solved(labels)
        for success_std, color in ((256.0, COLORS[0]), (1.0, COLORS[4])):
            found = shards(tasks, "hardness", success_std=success_std, trajectories_file=str(labels))
            shares = sorted(np.mean([i in easy for i in one.task_ids]) for one in found)
            panel.plot(shares, "o-", ms=3, color=color, label=f"success_std = {success_std:g}")
    panel.xaxis.set_major_locator(MaxNLocator(integer=True))
    panel.set(title="hardness: share of easy tasks, sorted", xlabel="client", ylim=(0, 1.02))
    panel.legend(frameon=False, fontsize=8)


def _solved(labels: Path) -> set[str]:
    from envs.partition.labels import read_labels

    return {task for task, is_solved in read_labels(labels).items() if is_solved}


def _likeness(panel: Axes, tasks: Sequence[Task], strategy: str, title: str, *, of: Any, **knobs: Any) -> None:
    spreads = []
    for env_div in DIVERGENCES:
        sets = [of(one) for one in shards(tasks, strategy, env_div=env_div, **knobs)]
        spreads.append([len(a & b) / len(a | b) for a, b in combinations(sets, 2)])
    panel.boxplot(spreads, tick_labels=[f"{div:g}" for div in DIVERGENCES], showfliers=False)
    panel.set(title=f"{strategy}: {title}", xlabel="env_div", ylabel="Jaccard index", ylim=(0, 1.05))


def _products(one: Shard) -> frozenset[str]:
    asins = [product.asin for product in WebShop().shop.products]
    return catalog(asins, one.variant.params if one.variant else {})


def _scenes(one: Shard) -> set[str]:
    return set(map(str, one.variant.params["scenes"])) if one.variant else set()


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "docs/heterogeneity.png"))
