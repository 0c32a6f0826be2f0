"""The partition lens as one self-contained HTML page: no script, no network, figures as inline SVG."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from flwr_agent import page
from flwr_agent.lens import ORACLE_COLUMNS, Lens, axes, cells, cross_rows, headline, oracle_rows

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

PAGE = """{% extends "base" %}{% block body %}
<p>Heterogeneity is 0 when all clients are alike. The floor is what shards of these sizes would show if they were drawn
at random; the leak is what the strategy moves above it on axes that are not its own.</p>
<table><tr><th>axis</th><th>heterogeneity</th><th>i.i.d. floor</th><th>leak</th></tr>
{% for row in axes %}<tr>{% for cell in row %}<td>{{ cell }}</td>{% endfor %}</tr>
{% endfor %}</table>
{% for title, figure in figures %}<h2>{{ title }}</h2>
{{ figure | safe }}
{% endfor %}
{% if oracle %}<h2>What an oracle wins in each kind of world</h2>
<p>In time means within the turns of an episode; tasks that are not won in time cannot be learned there.</p>
<table><tr>{% for name in oracle_columns %}<th>{{ name }}</th>{% endfor %}</tr>
{% for row in oracle %}<tr>{% for cell in row %}<td>{{ cell }}</td>{% endfor %}</tr>
{% endfor %}</table>{% endif %}
{% if cross %}<h2>Cross-evaluation</h2>
<p>Success of a policy after one client's training, sampled at T = {{ lens.cross.temperature }} on
{{ lens.cross.num_tasks }} tasks of every client's own shard in its own world; the diagonal was trained on.</p>
<table><tr><th>trained by</th>{% for client in lens.cross.clients %}<th>client {{ client }}</th>{% endfor %}</tr>
{% for row in cross %}<tr>{% for cell in row %}<td>{{ cell }}</td>{% endfor %}</tr>
{% endfor %}</table>{% endif %}
{% if worlds %}<h2>Worlds</h2>
<table><tr><th>world</th><th>clients</th><th>parameters</th></tr>
{% for count, world in worlds %}<tr><td>{{ loop.index0 }}</td><td>{{ count }}</td><td>{{ world }}</td></tr>
{% endfor %}</table>{% endif %}
<h2>Clients</h2>
<table><tr><th>client</th><th>tasks</th><th>category mix, %</th><th>easy, %</th><th>overlap</th><th>world</th></tr>
{% for row in clients %}<tr>{% for cell in row %}<td>{{ cell }}</td>{% endfor %}</tr>
{% endfor %}</table>
{% endblock %}
"""
Draw = Callable[["Axes", Lens], None]


def to_html(lens: Lens) -> str:
    """The page as text.

    Raises:
        ConfigError: if jinja2 or matplotlib is not installed.
    """
    counts = np.bincount([c.world for c in lens.clients if c.world is not None], minlength=len(lens.worlds))
    return page.render(
        PAGE,
        title=headline(lens),
        axes=axes(lens),
        figures=[(title, _svg(draw, height, lens)) for title, draw, height in _figures(lens)],
        worlds=[(count, _in_words(world)) for count, world in zip(counts, lens.worlds, strict=True)],
        clients=[cells(lens, client) for client in lens.clients],
        oracle_columns=ORACLE_COLUMNS,
        oracle=oracle_rows(lens),
        cross=cross_rows(lens),
        lens=lens,
    )


def _in_words(world: dict[str, object]) -> str:
    words = ", ".join(f"{key} {value}" for key, value in world.items() if not isinstance(value, list))
    long = ", ".join(f"{len(value)} {key}" for key, value in world.items() if isinstance(value, list))
    return f"{words}, {long}" if long else words


def _figures(lens: Lens) -> list[tuple[str, Draw, float]]:
    """Title, drawing, and height over width."""
    figures: list[tuple[str, Draw, float]] = [
        ("Category mix of each client", _draw_mix, 0.32),
        ("Tasks of each client", _draw_sizes, 0.2),
        ("Overlap of every two clients' tasks (Jaccard index)", _draw_overlap, 0.45),
    ]
    if lens.clients[0].easy_share is not None:
        figures.insert(2, ("Share of easy tasks of each client", _draw_easy, 0.2))
    if lens.world_disagreement:
        figures.append(("Share of steps on which two worlds answer differently", _draw_disagreement, 0.45))
    if lens.cross is not None:
        figures.append(
            ("Success of the policy of one client (row) in the world of another (column)", _draw_cross, 0.45)
        )
    return figures


def _svg(draw: Draw, height: float, lens: Lens) -> str:
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context({"font.size": 9}):
        figure = Figure(figsize=(10, 10 * height), layout="constrained")
        draw(figure.add_subplot(), lens)
        return page.to_svg(figure)


def _draw_mix(plot: Axes, lens: Lens) -> None:
    import matplotlib

    names = list(lens.clients[0].mix)
    palette = matplotlib.colormaps["Set2" if len(names) <= 8 else "tab20"]
    below = np.zeros(len(lens.clients))
    for number, name in enumerate(names):
        upto = below + np.array([client.mix[name] for client in lens.clients])
        _steps(plot, upto, below, palette(number % 20), name)
        below = upto
    plot.set(ylabel="share", ylim=(0, 1))
    plot.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)


def _draw_sizes(plot: Axes, lens: Lens) -> None:
    sizes = np.array([client.num_tasks for client in lens.clients])
    _steps(plot, sizes, np.zeros(len(sizes)), "#3b6ea5")
    plot.set(ylabel="tasks")


def _draw_easy(plot: Axes, lens: Lens) -> None:
    shares = np.array([client.easy_share for client in lens.clients], dtype=float)
    _steps(plot, shares, np.zeros(len(shares)), "#4f9d69")
    plot.set(ylabel="easy share", ylim=(0, 1))


def _steps(plot: Axes, upto: np.ndarray, below: np.ndarray, colour: object, label: str | None = None) -> None:
    """One bar per client, drawn as one shape."""
    plot.stairs(upto, np.arange(len(upto) + 1) - 0.5, baseline=below, fill=True, color=colour, label=label)
    plot.set(xlabel="client", xlim=(-0.5, len(upto) - 0.5))
    _count_in_integers(plot.xaxis)


def _draw_overlap(plot: Axes, lens: Lens) -> None:
    overlap = np.array(lens.overlap)
    others = overlap[~np.eye(len(overlap), dtype=bool)]
    _heatmap(plot, overlap, top=max(0.05, float(others.max(initial=0))), axis="client")


def _draw_disagreement(plot: Axes, lens: Lens) -> None:
    pairs = {tuple(map(int, pair.split("-"))): found.rate for pair, found in lens.world_disagreement.items()}
    played = sorted({world for pair in pairs for world in pair})
    rates = np.zeros((len(played), len(played)))
    for (i, j), rate in pairs.items():
        at = played.index(i), played.index(j)
        rates[at] = rates[at[::-1]] = rate
    _heatmap(plot, rates, top=1.0, axis="world")
    _number(plot, played)


def _draw_cross(plot: Axes, lens: Lens) -> None:
    if lens.cross is not None:
        _heatmap(plot, np.array(lens.cross.after), top=1.0, axis="client")
        _number(plot, lens.cross.clients)


def _number(plot: Axes, ids: Sequence[int]) -> None:
    """Name the rows and columns of a square map."""
    labels = [str(i) for i in ids]
    plot.set_xticks(range(len(labels)), labels)
    plot.set_yticks(range(len(labels)), labels)


def _heatmap(plot: Axes, values: np.ndarray, *, top: float, axis: str) -> None:
    image = plot.imshow(values, vmin=0, vmax=top, cmap="viridis", interpolation="nearest")
    plot.figure.colorbar(image, ax=plot, shrink=0.8)
    plot.set(xlabel=axis, ylabel=axis)
    _count_in_integers(plot.xaxis)
    _count_in_integers(plot.yaxis)


def _count_in_integers(axis: Axis) -> None:
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(integer=True))
