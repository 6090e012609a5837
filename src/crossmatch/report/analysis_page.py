"""What an analysis writes to a file: a page with its tables and pictures, or the pictures alone."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from crossmatch import __version__
from crossmatch.core.errors import CrossmatchError, MissingDependency, WrongWords
from crossmatch.core.whole import whole_file
from crossmatch.report.correlate import KINDS
from crossmatch.report.plots import STYLE
from crossmatch.report.tables import Table

TITLE = 0.9  # inches above a panel for its title and what it is about
PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{ title }}</title><style>{{ style | safe }}</style></head><body>
<h1>{{ title }}</h1><p class="lead">crossmatch {{ version }}</p>
{% for title, about, svg in figures %}<figure><h2>{{ title }}</h2><figcaption>{{ about }}</figcaption>{{ svg | safe }}</figure>
{% endfor %}{% for table in tables %}<h2>{{ table.title }}</h2><div class="wide"><table><thead>
{% for line in table.head %}<tr>{% for text in line %}<th{% if loop.index0 < table.stub %} class="stub"{% endif %}>{{ text }}</th>{% endfor %}</tr>
{% endfor %}</thead><tbody>
{% for line in table.rows %}<tr{% if line[0] %} class="first"{% endif %}>{% for text in line %}<td{% if loop.index0 < table.stub %} class="stub"{% endif %}>{{ text }}</td>{% endfor %}</tr>
{% endfor %}</tbody></table></div>{% for note in table.notes %}<p class="note">{{ note }}</p>{% endfor %}
{% endfor %}</body></html>
"""  # noqa: E501 - a page


class Panel(NamedTuple):
    """A picture to come: `draw` puts it into a figure, or a part of one, of 9 inches by `height`."""

    title: str
    about: str
    height: float
    draw: Callable[[Any], None]


def require_file(path: Path) -> None:
    """Refuse, before any work, a file of a kind that cannot be written."""
    if path.suffix not in (".html", *KINDS):
        raise WrongWords(f"{path} should end in .html for a page, or in {', '.join(KINDS)} for the pictures alone.")


def write(path: Path, title: str, tables: Sequence[Table], panels: Sequence[Panel]) -> Path:
    """A page with everything, or one picture with all panels below one another, by the ending of the file."""
    require_file(path)
    if not panels and path.suffix != ".html":
        raise CrossmatchError(f"there is nothing to draw for {path}. Write a page instead: {path.with_suffix('.html')}")
    written = _page(title, tables, panels) if path.suffix == ".html" else _picture(panels, path.suffix)
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path) as file:
        file.write(written)
    return path


def as_svg(panel: Panel) -> str:
    """One panel as inline SVG, without its title."""
    text = _saved([panel], ".svg", titles=False).decode()
    return text[text.index("<svg") :]


def _page(title: str, tables: Sequence[Table], panels: Sequence[Panel]) -> bytes:
    try:
        from jinja2 import Environment
    except ImportError:
        raise MissingDependency("Jinja2", "report") from None
    report = Path(__file__).with_name("page.html").read_text(encoding="utf-8")
    style = re.search(r"<style>(.*?)</style>", report, re.DOTALL)
    figures = [(panel.title, panel.about, as_svg(panel)) for panel in panels]
    page = Environment(autoescape=True).from_string(PAGE)
    told = page.render(title=title, tables=tables, figures=figures, style=style[1] if style else "", version=__version__)
    return told.encode()


def _picture(panels: Sequence[Panel], suffix: str) -> bytes:
    return _saved(panels, suffix, titles=True)


def _saved(panels: Sequence[Panel], suffix: str, titles: bool) -> bytes:
    try:
        import matplotlib
    except ImportError:
        raise MissingDependency("matplotlib", "report") from None
    from matplotlib.figure import Figure

    out = io.BytesIO()
    heights = [panel.height + (TITLE if titles else 0.0) for panel in panels]
    with matplotlib.rc_context(STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from")  # of a model's name: better a box than no picture
        figure = Figure(figsize=(9.0, sum(heights)), layout="constrained")
        parts = figure.subfigures(len(panels), 1, height_ratios=heights, squeeze=False)[:, 0]
        for panel, part in zip(panels, parts, strict=True):
            panel.draw(part)
            if titles:
                part.suptitle(f"{panel.title}\n\n", x=0.02, ha="left", fontsize=13, fontweight="bold")
                part.text(0.02, 1 - 0.36 / (panel.height + TITLE), panel.about, fontsize=9, color="#555555", va="top")
        figure.savefig(out, format=suffix[1:], dpi=130, metadata=KINDS[suffix])
    return out.getvalue()
