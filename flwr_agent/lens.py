"""The partition lens: what every client of a federation holds, how the clients differ, and what leaks between axes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from envs.base import Shard, Task, Variant
from envs.partition import heterogeneity, knobs
from envs.partition.disagreement import Disagreement
from envs.partition.heterogeneity import Heterogeneity, Mask
from envs.partition.labels import check_labels, easy_tasks, read_labels
from flwr_agent import lens_worlds
from flwr_agent.config import RunConfig
from flwr_agent.cross import CrossEvaluation
from flwr_agent.lens_worlds import Winnable
from flwr_agent.world import to_adapter, to_knobs, to_shard

ORACLE_COLUMNS = ("world", "clients", "oracle wins", "in time", "actions")
CROSS = "success in the world and on the tasks of"
SHOWN_CLIENTS = 20
"""Rows of the terminal's table; the page has all."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Client:
    """One client's part in numbers."""

    client_id: int
    num_tasks: int
    mix: dict[str, float]
    """Category -> share of the client's tasks."""
    easy_share: float | None
    """Share of tasks that a reference policy solved; None without labels."""
    mean_overlap: float
    """Mean Jaccard index with every other client's tasks; 0 if there is no other."""
    world: int | None
    """Position in `Lens.worlds`; None for the standard world."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Lens:
    """All that there is to see of a partition; `asdict` gives plain data.

    Example:
        >>> look(resolve({"env.name": "tinyguess"})).metrics.coverage
        0.0
    """

    env: str
    strategy: str
    knobs: dict[str, Any]
    num_pool: int
    """Training tasks of the environment."""
    num_held: int
    """Tasks of the pool that at least one client holds."""
    clients: list[Client]
    overlap: list[list[float]]
    """`[C, C]` Jaccard index of every two clients' tasks."""
    metrics: Heterogeneity
    iid_floor: Heterogeneity
    leak: dict[str, float]
    """Axis that the strategy should not move -> how far it is above the i.i.d. floor."""
    worlds: list[dict[str, Any]]
    """Distinct variants, `{"name": ..., **params}`, in order of first client."""
    winnable: dict[str, Winnable]
    """World -> what an oracle wins there; one world of each kind, none unless it was asked for."""
    world_disagreement: dict[str, Disagreement]
    """`"i-j"` -> how often worlds i and j answer differently; empty unless it was asked for."""
    cross: CrossEvaluation | None = None
    """What policies trained by some clients win in the worlds of others, if it was asked for."""


def look(config: RunConfig, *, labels: Path | None = None, play_tasks: int = 0) -> Lens:
    """Compute every client's shard and world, and what they say about the federation.

    Args:
        config: Names environment, partition and number of clients.
        labels: Success labels for the difficulty axis, when the strategy itself has none.
        play_tasks: Tasks that an oracle plays in every world and every two worlds are compared on; 0 plays none.

    Raises:
        ConfigError: the environment, the strategy or a knob does not fit.
        DataError: the labels cannot be read.
    """
    tasks = to_adapter(config).tasks("train")
    shards = [to_shard(config, tasks, client) for client in range(config.federation.total_clients)]
    file = labels or _own_labels(config)
    easy = _easy(tasks, file) if file else None
    metrics, floor = heterogeneity.measure(tasks, shards, easy), heterogeneity.iid_floor(tasks, shards, easy)
    held_CN = heterogeneity.holdings(tasks, shards)
    worlds = _worlds(shards)
    strategy = config.partition.strategy
    return Lens(
        env=config.env.name,
        strategy=strategy,
        knobs=dict(sorted(to_knobs(config).items())),
        num_pool=len(tasks),
        num_held=int(held_CN.any(axis=0).sum()),
        clients=_clients(tasks, shards, held_CN, easy, worlds),
        overlap=heterogeneity.overlap(held_CN).tolist(),
        metrics=metrics,
        iid_floor=floor,
        leak=heterogeneity.leak(strategy, metrics, floor),
        worlds=[{"name": world.name, **world.params} for world in worlds],
        winnable=lens_worlds.winnable(config, tasks, shards, worlds, play_tasks) if play_tasks else {},
        world_disagreement=lens_worlds.compared(config, tasks, shards, worlds, play_tasks) if play_tasks else {},
    )


def _own_labels(config: RunConfig) -> str | None:
    uses_labels = "trajectories_file" in knobs(config.partition.strategy)
    return config.partition.trajectories_file if uses_labels else None


def _easy(tasks: Sequence[Task], file: Path | str) -> Mask:
    labels = read_labels(file)
    check_labels(labels, tasks, "labels", file)
    return easy_tasks(tasks, labels)


def _worlds(shards: Sequence[Shard]) -> list[Variant]:
    distinct: list[Variant] = []
    for shard in shards:
        if shard.variant is not None and shard.variant not in distinct:
            distinct.append(shard.variant)
    return distinct


def _clients(
    tasks: Sequence[Task], shards: Sequence[Shard], held_CN: Mask, easy: Mask | None, worlds: list[Variant]
) -> list[Client]:
    names = heterogeneity.categories(tasks)
    mix_CK = heterogeneity.category_mix(tasks, held_CN).tolist()
    easy_C = [None] * len(shards) if easy is None else heterogeneity.easy_share(held_CN, easy).tolist()
    overlap_C = (heterogeneity.overlap(held_CN).sum(axis=1) - 1) / max(1, len(shards) - 1)
    return [
        Client(
            client_id=shard.client_id,
            num_tasks=len(shard.task_ids),
            mix=dict(zip(names, mix_CK[c], strict=True)),
            easy_share=easy_C[c],
            mean_overlap=float(overlap_C[c]),
            world=None if shard.variant is None else worlds.index(shard.variant),
        )
        for c, shard in enumerate(shards)
    ]


def show(lens: Lens, console: Console) -> None:
    """Print a lens as tables."""
    console.print(headline(lens), *tables(lens), sep="\n", highlight=False)


def headline(lens: Lens) -> str:
    """The partition in one line."""
    held = f"{lens.num_held} of {lens.num_pool} tasks held by {len(lens.clients)} clients"
    values = " ".join(f"{name}={value}" for name, value in lens.knobs.items())
    return f"{lens.env} · {lens.strategy} ({values}) · {held}"


def axes(lens: Lens) -> list[tuple[str, str, str, str]]:
    """Rows (axis, heterogeneity, i.i.d. floor, leak) in words; the leak is empty for the strategy's own axis."""
    floors = asdict(lens.iid_floor)
    return [
        (axis, "no labels", "", "")
        if value is None
        else (axis, f"{value:.4f}", f"{floors[axis]:.4f}", f"{lens.leak[axis]:+.4f}" if axis in lens.leak else "")
        for axis, value in asdict(lens.metrics).items()
    ]


def tables(lens: Lens) -> list[Table]:
    """The lens for a terminal: axes, played worlds if any, the first clients, the cross-evaluation if there is one."""
    of_axes = Table("axis", "heterogeneity", "i.i.d. floor", "leak")
    for row in axes(lens):
        of_axes.add_row(*row)
    of_oracle = Table(*ORACLE_COLUMNS, caption="in time: within rollout.max_turns actions")
    for row in oracle_rows(lens):
        of_oracle.add_row(*row)
    of_worlds = Table("worlds", "disagreement", "steps compared", "steps apart")
    for pair, found in lens.world_disagreement.items():
        of_worlds.add_row(pair, f"{found.rate:.3f}", str(found.num_compared), str(found.num_unforced))
    of_clients = Table("client", "tasks", "category mix, %", "easy, %", "overlap", "world")
    for client in lens.clients[:SHOWN_CLIENTS]:
        of_clients.add_row(*cells(lens, client))
    if len(lens.clients) > SHOWN_CLIENTS:
        of_clients.caption = f"{len(lens.clients) - SHOWN_CLIENTS} more clients are on the page and in its data"
    of_cross = Table("trained by", *(f"client {c}" for c in lens.cross.clients), title=CROSS) if lens.cross else Table()
    for row in cross_rows(lens):
        of_cross.add_row(*row)
    return [
        of_axes,
        *(table for table in (of_oracle, of_worlds) if table.row_count),
        of_clients,
        *[of_cross] * bool(lens.cross),
    ]


def oracle_rows(lens: Lens) -> list[tuple[str, ...]]:
    """Rows of `ORACLE_COLUMNS` in words, one per world that was played."""
    return [
        (
            world_label(lens, int(at)),
            str(one.num_clients),
            *(
                (
                    f"{one.num_solved / one.num_tasks:.0%}",
                    f"{one.num_in_time / one.num_tasks:.0%}",
                    f"{one.mean_actions:.1f}",
                )
                if one.num_tasks
                else ("no oracle", "", "")
            ),
        )
        for at, one in lens.winnable.items()
    ]


def cross_rows(lens: Lens) -> list[tuple[str, ...]]:
    """Rows of the cross-evaluation: the policy before training, then after each client's."""
    if lens.cross is None:
        return []
    names = ["nobody yet", *(f"client {c}" for c in lens.cross.clients)]
    values = [lens.cross.before, *lens.cross.after]
    return [(name, *(f"{value:.2f}" for value in row)) for name, row in zip(names, values, strict=True)]


def cells(lens: Lens, client: Client) -> tuple[str, str, str, str, str, str]:
    """One client in words; categories that round to nothing are left out."""
    shares = [(name, round(100 * share)) for name, share in client.mix.items()]
    mix = " · ".join(f"{name} {percent}" for name, percent in shares if percent)
    easy = "" if client.easy_share is None else str(round(100 * client.easy_share))
    overlap = f"{client.mean_overlap:.3f}"
    return str(client.client_id), str(client.num_tasks), mix, easy, overlap, world_label(lens, client.world)


def world_label(lens: Lens, position: int | None) -> str:
    """A world in a few words: its position, and its kind where it has one."""
    if position is None:
        return "standard"
    return f"{position} {lens.worlds[position].get('kind', '')}".strip()
