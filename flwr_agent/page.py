"""Self-contained HTML pages: one look, no script, no network, figures as inline SVG."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

from flwr_agent.errors import ConfigError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BASE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{ title }}</title>
<style>
body { font: 15px/1.5 system-ui, sans-serif; max-width: 1080px; margin: 2rem auto; padding: 0 1rem; color: #1c2733; }
h1 { font-size: 1.25rem } h2 { font-size: 1.05rem; margin-top: 2rem } h3 { font-size: .95rem; margin: 0 0 .3rem }
.wide { overflow-x: auto } table { border-collapse: collapse; font-size: .9rem }
td, th { padding: .25rem .7rem; text-align: left } td { border-bottom: 1px solid #e6ebf0; vertical-align: top }
th { border-bottom: 2px solid #c5cfd8 }
svg { max-width: 100%; height: auto } p { max-width: 46rem }
pre { white-space: pre-wrap; overflow-wrap: anywhere; background: #f5f7f9; padding: .6rem; font-size: .8rem }
{% block style %}{% endblock %}
</style></head><body>
<h1>{{ title }}</h1>
{% block body %}{% endblock %}
</body></html>
"""
TABLE = """{% macro table(header, rows) %}<div class="wide"><table>
<tr>{% for cell in header %}<th>{{ cell }}</th>{% endfor %}</tr>
{% for row in rows %}<tr>{% for cell in row %}<td>{{ cell }}</td>{% endfor %}</tr>
{% endfor %}</table></div>{% endmacro %}"""


def render(page: str, *, title: str, **values: Any) -> str:
    """A page that extends `base`; it may import the macro `table` from `table`.

    Raises:
        ConfigError: if jinja2 or matplotlib is not installed.
    """
    try:
        import matplotlib as _  # noqa: F401
        from jinja2 import DictLoader, Environment
    except ModuleNotFoundError as error:
        raise ConfigError("html", error.name, "is missing for the page; pip install 'flwr-agent[train]'") from error
    loader = DictLoader({"base": BASE, "table": TABLE, "page": page})
    return Environment(autoescape=True, loader=loader).get_template("page").render(title=title, **values)


def to_svg(figure: Figure) -> str:
    """A figure as an SVG element; equal figures give equal text."""
    import matplotlib

    buffer = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": "page", "svg.fonttype": "none"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    text = buffer.getvalue()
    return text[text.index("<svg") :]
