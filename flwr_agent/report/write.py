"""A report on disk: `report.html`, which needs nothing else, and its figures as PNG files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from flwr_agent import page
from flwr_agent.report import figures, tables
from flwr_agent.report.figures import Figure
from flwr_agent.report.runs import AXES, Pool, Run, pools

FILE, FIGURES = "report.html", "figures"
PAGE = """{% extends "base" %}{% from "table" import table %}
{% macro figure(f) %}<figure id="{{ f.key }}"><h3>{{ f.title }}</h3>{{ f.svg | safe }}
<figcaption>{{ f.note }}</figcaption></figure>{% endmacro %}
{% block style %}
.figures, .axis { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 420px), 1fr)); gap: 1.2rem }
figure { margin: 0 } figure svg { width: 100% } figcaption { font-size: .8rem; color: #5a6875 }
.axis { display: none } input[name=axis] { margin: .6rem .3rem .6rem 0 } label { margin-right: 1rem; white-space: nowrap }
{% for axis in axes %}#axis-{{ axis }}:checked ~ .{{ axis }}{{ "," if not loop.last }} {% endfor %} { display: grid }
details { margin: .4rem 0 }
{% endblock %}
{% block body %}
<h2>Results</h2>
{{ table(*overview) }}
<p>Mean of last: over the last evaluations after round 0, at most ten (their number in brackets), never the best one. Gain: the
same minus round 0 on the same tasks; its low end is that of a 95 % bootstrap over tasks.</p>
{% if seeds[1] %}<h2>Seeds</h2>{{ table(*seeds) }}{% endif %}
{% if comparisons[1] %}<h2>Experiments compared</h2>{{ table(*comparisons) }}
<p>Mean over seeds and tasks of the difference between the means of last, on the same seeds and tasks; the interval is that of a
hierarchical bootstrap over seeds and tasks.</p>{% endif %}
<h2>Held-out tasks</h2>
<div>{% for axis, label in axes.items() %}<input type="radio" name="axis" id="axis-{{ axis }}"{{ " checked" if loop.first }}>
<label for="axis-{{ axis }}">{{ label }}</label>{% endfor %}
{% for axis, drawn in curves.items() %}<div class="axis {{ axis }}">
{% for f in drawn %}{{ figure(f) }}{% endfor %}</div>{% endfor %}</div>
{% for title, types in types %}<h2>{{ title }}</h2>{{ table(*types) }}{% endfor %}
{% if training %}<h2>Training</h2><div class="figures">{% for f in training %}{{ figure(f) }}{% endfor %}</div>{% endif %}
{% if costs %}<h2>Time and traffic</h2><div class="figures">{% for f in costs %}{{ figure(f) }}{% endfor %}</div>{% endif %}
<h2>What the clients did</h2>{{ table(*accounting) }}
<h2>Failures</h2>{% if failures[1] %}{{ table(*failures) }}{% else %}<p>None.</p>{% endif %}
{% for name, kept in episodes %}<h2>Best and worst episodes{{ name }}</h2>
{% for e in kept %}<details><summary>{{ e.kind }}: {{ e.task }}, {{ e.mode }}, score {{ "%.2f" | format(e.score) }},
{{ e.turns | length }} turns, {{ e.stop }}</summary>
{% for turn in e.turns %}<pre>{{ turn.prompt }}</pre><pre><b>{{ turn.answer }}</b></pre>{% endfor %}</details>{% endfor %}
{% endfor %}
<h2>Configuration</h2>
{% if settings[1] %}{{ table(*settings) }}{% else %}<p>Every key has its default.</p>{% endif %}
{% endblock %}
"""


def write(folders: Sequence[Path], out: Path) -> Path:
    """Make the report of one or several runs under `out`; returns the page.

    Raises:
        DataError: a folder is not one of a run.
        ConfigError: a pool has a seed twice, or matplotlib or jinja2 is not installed.
    """
    found = pools([Run.read(folder) for folder in folders])
    for pool in found:
        pool.check_seeds()
    return write_pools(found, out)


def write_pools(found: Sequence[Pool], out: Path) -> Path:
    """The same for runs that have been read and grouped."""
    runs = [run for pool in found for run in pool.runs]
    (out / FIGURES).mkdir(parents=True, exist_ok=True)
    values = {
        "curves": {axis: _drawn(figures.curves(found, axis), out) for axis in AXES},
        "training": _drawn(figures.training(found), out),
        "costs": _drawn(figures.costs(found), out),
    }
    path = out / FILE
    path.write_text(
        page.render(PAGE, title=_title(found), axes=AXES, **values, **_tables(found, runs)), encoding="utf-8"
    )
    return path


def _drawn(drawings: Sequence[Figure], out: Path) -> list[dict[str, str]]:
    """Draw each once: as PNG beside the page and as SVG in it."""
    drawn: list[dict[str, str]] = []
    for figure in drawings:
        canvas = figure.canvas()
        canvas.savefig(out / FIGURES / f"{figure.key}.png", dpi=160)
        drawn.append({"key": figure.key, "title": figure.title, "note": figure.note, "svg": page.to_svg(canvas)})
    return drawn


def _tables(found: Sequence[Pool], runs: Sequence[Run]) -> dict[str, Any]:
    is_one = len(runs) == 1
    types = [
        (f"By task type, {mode}" + ("" if is_one else f": {run.name}"), table)
        for run in runs
        for mode in tables.MODES
        if (table := tables.types(run, mode))
    ]
    kept = [("" if is_one else f": {run.name}", tables.episodes(run)) for run in runs]
    return {
        "overview": tables.overview(found),
        "seeds": tables.seeds(found),
        "comparisons": tables.comparisons(found),
        "types": types,
        "accounting": tables.accounting(runs),
        "failures": tables.failures(runs),
        "episodes": [(name, episodes) for name, episodes in kept if episodes],
        "settings": tables.settings(found),
    }


def _title(found: Sequence[Pool]) -> str:
    if len(found) == 1 and len(found[0].runs) == 1:
        return found[0].runs[0].name
    return f"{sum(len(pool.runs) for pool in found)} runs of {len(found)} experiments"
