"""Render pages from the templates, and write pages and figures to files."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from crossmatch import __version__
from crossmatch.data.errors import CrossmatchError, MissingDependencyError, UsageError
from crossmatch.data.io.atomic_write import atomic_write
from crossmatch.report.result_plots import FIGURE_METADATA, figure_bytes, styled
from crossmatch.report.tables import Table

if TYPE_CHECKING:
    from PIL.Image import Image

TITLE_HEIGHT = 0.9  # inches above a panel for its title and description


class Panel(NamedTuple):
    """A figure to draw: `draw` draws it into a matplotlib figure or subfigure of 9 inches by `height`."""

    title: str
    description: str
    height: float
    draw: Callable[[Any], None]


def render_template(name: str, **values: Any) -> str:
    """Render a template of this package. Pages are self-contained: they refer to no other file."""
    try:
        from jinja2 import Environment, FileSystemLoader
    except ImportError:
        raise MissingDependencyError("Jinja2", "report") from None
    environment = Environment(autoescape=True, loader=FileSystemLoader(Path(__file__).with_name("templates"), encoding="utf-8"))
    return environment.get_template(name).render(version=__version__, **values)


def require_figure_suffix(path: Path) -> None:
    """Refuse an image file of an unknown type before any work is done."""
    if path.suffix.lower() not in FIGURE_METADATA:
        raise UsageError(f"{path}: the name of an image must end in {', '.join(FIGURE_METADATA)}.")


def require_output_suffix(path: Path) -> None:
    """Refuse an output file of an unknown type before any work is done."""
    if path.suffix not in (".html", *FIGURE_METADATA):
        raise UsageError(f"{path}: the name must end in .html for a page, or in {', '.join(FIGURE_METADATA)} for the figures.")


def write_analysis(path: Path, title: str, tables: Sequence[Table], panels: Sequence[Panel]) -> Path:
    """Write a page with tables and figures, or one image with all figures, depending on the suffix of the file."""
    require_output_suffix(path)
    if path.suffix == ".html":
        page = render_template("analysis.html", title=title, tables=tables, figures=render_panels(panels))
        return write_output(path, page.encode())
    if not panels:
        raise CrossmatchError(f"There is no figure for {path}. Write a page instead: {path.with_suffix('.html')}")
    return write_output(path, _draw_panels(panels, path.suffix, titles=True))


def image_data_url(image: Image, size: int) -> str:
    """A small JPEG of an image for a page that refers to no other file; at most `size` pixels wide and high."""
    small = image.copy()
    small.thumbnail((size, size))
    out = io.BytesIO()
    small.convert("RGB").save(out, "JPEG", quality=85)
    return "data:image/jpeg;base64," + base64.b64encode(out.getvalue()).decode()


def write_output(path: Path, content: bytes) -> Path:
    """Write a file atomically; missing folders are created."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as file:
        file.write(content)
    return path


def panel_svg(panel: Panel) -> str:
    """A panel as inline SVG, without its title."""
    text = _draw_panels([panel], ".svg", titles=False).decode()
    return text[text.index("<svg") :]


def render_panels(panels: Sequence[Panel]) -> list[tuple[str, str, str]]:
    """Title, description and SVG of each panel, for templates."""
    return [(panel.title, panel.description, panel_svg(panel)) for panel in panels]


@styled
def _draw_panels(panels: Sequence[Panel], suffix: str, titles: bool) -> bytes:
    from matplotlib.figure import Figure

    heights = [panel.height + (TITLE_HEIGHT if titles else 0.0) for panel in panels]
    figure = Figure(figsize=(9.0, sum(heights)), layout="constrained")
    parts = figure.subfigures(len(panels), 1, height_ratios=heights, squeeze=False)[:, 0]
    for panel, part in zip(panels, parts, strict=True):
        panel.draw(part)
        if titles:
            part.suptitle(f"{panel.title}\n\n", x=0.02, ha="left", fontsize=13, fontweight="bold")
            part.text(0.02, 1 - 0.36 / (panel.height + TITLE_HEIGHT), panel.description, fontsize=9, color="#555555", va="top")
    return figure_bytes(figure, suffix, dpi=130)
