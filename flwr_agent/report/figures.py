"""The figures of a report, each drawn from the ledgers of one or several experiments."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from flwr_agent.report import series
from flwr_agent.report.runs import AXES, Pool

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

SIZE = (4.6, 3.1)
"""Inches; at a phone's width the text is still 10 pixels high."""
COLORS = ("#1f6feb", "#d9822b", "#2f9e6e", "#a04bc2", "#c9384b", "#6b7785", "#8a6d3b", "#118ab2")
STAGE_COLORS = ("#6b7785", "#118ab2", "#1f6feb", "#2f9e6e", "#d9822b", "#a04bc2", "#c9384b", "#8a6d3b")
FROM_CLIENTS = {
    "reward": ("Training reward", "mean return of an episode"),
    "kl": ("KL to the anchor", "k3 estimate, nats a token"),
    "entropy": ("Entropy", "nats a token"),
    "sampler_gap": ("Gap between sampler and trainer", "mean |difference of log-probs|"),
    "importance_ess": ("Effective sample size", "share of the tokens, by importance weights"),
    "grad_norm": ("Gradient norm before clipping", "mean of a client's steps"),
    "critic/explained_variance": ("Critic", "explained variance of the returns"),
    "zero_std_groups": ("Groups without signal", "share whose attempts all ended alike"),
    "clip_fraction": ("Clipped tokens", "share of tokens"),
    "update_norm": ("Norm of a client's update", "L2 norm over all weights"),
}
"""Metric of the client lines -> title and unit."""
COSINE = "update_cosine"


@dataclass(frozen=True, kw_only=True, slots=True)
class Figure:
    """One picture."""

    key: str
    """Id in the page, and file name."""
    title: str
    note: str
    """What is drawn, in a sentence."""
    draw: Callable[[Axes], None]

    def canvas(self) -> Canvas:
        """The picture, drawn."""
        import matplotlib
        from matplotlib.figure import Figure as Canvas

        with matplotlib.rc_context({"font.size": 9}):
            canvas = Canvas(figsize=SIZE, layout="constrained")
            plot = canvas.add_subplot()
            self.draw(plot)
            plot.spines[["top", "right"]].set_visible(False)
            canvas.draw_without_rendering()
            canvas.set_layout_engine("none")  # laid out once, saved twice
            return canvas


def curves(pools: Sequence[Pool], axis: str) -> list[Figure]:
    """Held-out success and score over an axis."""
    bands = (
        "Band: from the lowest to the highest seed; single runs: 95 % over tasks."
        if any(len(pool.runs) > 1 for pool in pools)
        else "Band: 95 % over tasks. Dotted: mean of the last evaluations."
    )
    found: list[Figure] = []
    for name, title in {
        "sampled/success": "Held-out success, sampled",
        "greedy/success": "Held-out success, greedy",
        "sampled/task_score": "Held-out task score, sampled",
        "greedy/task_score": "Held-out task score, greedy",
    }.items():
        if any(series.held_out(pool, name) for pool in pools):
            key = f"{name.replace('/', '-')}-{axis}"
            draw = partial(_draw_held_out, pools=pools, name=name, axis=axis)
            found.append(Figure(key=key, title=title, note=bands, draw=draw))
    return found


def training(pools: Sequence[Pool]) -> list[Figure]:
    """What the clients measured while they trained."""
    found: list[Figure] = []
    if any(series.client_mean(pool, "success") for pool in pools):
        note = (
            "Success on a client's own tasks at T = 1 while it trains. Circles: clients; dashed: the worst of a round."
        )
        found.append(Figure(key="clients", title="Clients", note=note, draw=partial(_draw_clients, pools=pools)))
    for metric, (title, unit) in FROM_CLIENTS.items():
        if any((line := series.client_mean(pool, metric)) and any(line.high) for pool in pools):
            draw = partial(_draw_metric, pools=pools, metric=metric, unit=unit)
            note = "Mean over clients; band: from the lowest to the highest client."
            found.append(Figure(key=metric.replace("_", "-").replace("/", "-"), title=title, note=note, draw=draw))
    if any(series.round_metric(pool, COSINE) for pool in pools):
        note = (
            "Mean over pairs, weighted by the lengths of the two updates; 1: all clients move the model the same way."
        )
        draw = partial(_draw_cosine, pools=pools)
        found.append(Figure(key="update-cosine", title="Cosine between clients' updates", note=note, draw=draw))
    return found


def costs(pools: Sequence[Pool]) -> list[Figure]:
    """Where time and bytes go."""
    bars = {
        "seconds-round": ("Seconds of a round, by stage", "Stages of the server follow one another; means over rounds.", series.server_seconds, "s"),
        "seconds-client": ("Seconds of a client in a round, by stage", "Means over client-rounds.", series.client_seconds, "s"),
        "bytes-round": ("Array bytes of a round", "To and from all clients; means over rounds.", series.payload, "MB"),
    }  # fmt: skip
    found: list[Figure] = []
    for key, (title, note, measure, unit) in bars.items():
        values = {pool.label: _mean([measure(run) for run in pool.runs]) for pool in pools}
        if any(any(parts.values()) for parts in values.values()):
            found.append(Figure(key=key, title=title, note=note, draw=partial(_draw_bars, values=values, unit=unit)))
    return found


def _mean(parts: Sequence[Mapping[str, float]]) -> dict[str, float]:
    names = dict.fromkeys(name for part in parts for name in part)
    return {name: sum(part.get(name, 0.0) for part in parts) / len(parts) for name in names}


def _draw_held_out(plot: Axes, *, pools: Sequence[Pool], name: str, axis: str) -> None:
    for number, pool in enumerate(pools):
        line = series.held_out(pool, name)
        if line is None:
            continue
        places = [run.positions(axis) for run in pool.runs]
        xs = [sum(place[r] for place in places) / len(places) for r in line.rounds]
        color = _line(plot, xs, line, number, pool.label)
        if len(pool.runs) > 1:
            for run, place in zip(pool.runs, places, strict=True):
                own = series.outcomes(run, name)
                plot.plot(
                    [place[r] for r in own], [sum(v) / len(v) for v in own.values()], color=color, lw=0.5, alpha=0.6
                )
        elif last := series.last_mean(pool.runs[0], name):
            plot.hlines(last[0], xs[-last[3]], xs[-1], color=color, ls=":", lw=1.5)
    plot.set(ylim=(0, 1), xlabel=AXES[axis], ylabel=name.partition("/")[2].replace("_", " "))
    _finish(plot, len(pools))


def _draw_clients(plot: Axes, *, pools: Sequence[Pool]) -> None:
    for number, pool in enumerate(pools):
        color = COLORS[number % len(COLORS)]
        if (line := series.client_mean(pool, "success")) is None:
            continue
        plot.plot(line.rounds, line.values, color=color, lw=1.2, label=pool.label)
        plot.plot(*series.worst_client(pool, "success"), color=color, lw=1, ls="--")
        for run in pool.runs:
            points = [(r, v) for r, by_client in series.clients(run, "success").items() for v in by_client.values()]
            plot.plot(*zip(*points, strict=True), "o", mfc="none", ms=3.5, color=color, alpha=0.6)
    plot.set(ylim=(0, 1), xlabel=AXES["rounds"], ylabel="success")
    _finish(plot, len(pools))


def _draw_metric(plot: Axes, *, pools: Sequence[Pool], metric: str, unit: str) -> None:
    for number, pool in enumerate(pools):
        if line := series.client_mean(pool, metric):
            _line(plot, line.rounds, line, number, pool.label)
    plot.set(xlabel=AXES["rounds"], ylabel=unit)
    _finish(plot, len(pools))


def _draw_cosine(plot: Axes, *, pools: Sequence[Pool]) -> None:
    for number, pool in enumerate(pools):
        if line := series.round_metric(pool, COSINE):
            _line(plot, line.rounds, line, number, pool.label)
    plot.axhline(0, color="0.7", lw=0.8)
    plot.set(xlabel=AXES["rounds"], ylabel="cosine")
    _finish(plot, len(pools))


def _draw_bars(plot: Axes, *, values: Mapping[str, Mapping[str, float]], unit: str) -> None:
    scale = 1e6 if unit == "MB" else 1.0
    names = list(dict.fromkeys(name for parts in values.values() for name in parts))
    left = [0.0] * len(values)
    for number, name in enumerate(names):
        widths = [parts.get(name, 0.0) / scale for parts in values.values()]
        plot.barh(range(len(values)), widths, left=left, color=STAGE_COLORS[number % len(STAGE_COLORS)], label=name)
        left = [start + width for start, width in zip(left, widths, strict=True)]
    plot.set_yticks(range(len(values)), [_short(label) for label in values])
    plot.invert_yaxis()
    plot.set_xlabel(unit)
    plot.figure.legend(loc="outside lower center", ncols=3, frameon=False, fontsize=8)


def _line(plot: Axes, xs: Sequence[float], line: series.Series, number: int, label: str) -> str:
    color = COLORS[number % len(COLORS)]
    plot.plot(xs, line.values, "-o", ms=2.5, lw=1.3, color=color, label=label)
    plot.fill_between(xs, line.low, line.high, color=color, alpha=0.15, lw=0)
    return color


def _finish(plot: Axes, num_pools: int) -> None:
    from matplotlib.ticker import MaxNLocator

    plot.grid(alpha=0.25)
    if plot.get_xlabel() == AXES["rounds"]:
        plot.xaxis.set_major_locator(MaxNLocator(integer=True))
    if num_pools > 1:
        handles, labels = plot.get_legend_handles_labels()
        plot.figure.legend(
            handles, [_short(label) for label in labels], loc="outside lower center", frameon=False, fontsize=8
        )


def _short(label: Any, most: int = 48) -> str:
    return label if len(label) <= most else f"{label[: most - 1]}…"
