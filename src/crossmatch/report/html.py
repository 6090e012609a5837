"""The report: one self-contained page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from crossmatch import __version__
from crossmatch.core.errors import CrossmatchError, MissingDependency
from crossmatch.core.result import Result
from crossmatch.core.standing import Standing
from crossmatch.report import plots
from crossmatch.report.published import beside
from crossmatch.report.tables import by_task, findings, results_table

NAMES = {
    "i2t": "Captions for an image", "t2i": "Images for a caption", "t2t": "Captions like a caption", "i2i": "Images like an image",
}  # fmt: skip


def write_report(results: Sequence[Result], path: Path, published: bool = False) -> Path:
    """Write the page; nothing in it points outside of it. Published numbers stand in tables of their own."""
    try:
        from jinja2 import Environment
    except ImportError:
        raise MissingDependency("Jinja2", "report") from None
    if not results:
        raise CrossmatchError("a report needs at least one result. Make one: crossmatch run -m MODEL -t TASK")
    page = Environment(autoescape=True).from_string(Path(__file__).with_name("page.html").read_text(encoding="utf-8"))
    sections = [
        {
            "table": table,
            "findings": findings(mine),
            "figures": _figures(mine),
            "signatures": [*(r.system for r in mine), *dict.fromkeys(row.signature for r in mine for row in r.rows)],
        }
        for table, mine in zip(results_table(results), by_task(results), strict=True)
    ]
    for table in beside(results) if published else ():
        sections.append({"table": table, "findings": (), "figures": [], "signatures": []})
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        page.render(sections=sections, models=list(dict.fromkeys(r.model for r in results)), version=__version__),
        encoding="utf-8",
    )
    return path


def _figures(results: list[Result]) -> list[tuple[str, str, str]]:
    parts = dict.fromkeys(name for r in results for name, part in r.parts.items() if isinstance(part.evidence, Standing))
    figures = []
    for direction in dict.fromkeys(name.partition("/")[0] for name in parts):
        title = NAMES.get(direction, direction)
        sets = [name.partition("/")[2] for name in parts if name.partition("/")[0] == direction]
        percent = any(row.unit == "%" for r in results for row in r.rows)
        circles = f" Open circle: by {sets[0]}; full circle: by {sets[1]}." if len(sets) == 2 else ""
        dashes = f" Dashed: by {sets[0]}; solid: by {sets[1]}." if len(sets) == 2 else ""
        if percent:
            about = f"Each metric with its 95 % interval; the grey tick is chance.{circles}"
            figures.append((f"{title} ({direction})", about, plots.by_metric(results, direction)))
        about = f"How soon something right turns up.{dashes}"
        figures.append((f"{title}: hits by depth", about, plots.hits_by_depth(results, direction)))
    return figures
