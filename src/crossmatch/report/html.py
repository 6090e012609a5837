"""The report: one self-contained page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from crossmatch import __version__
from crossmatch.core.errors import CrossmatchError, MissingDependency
from crossmatch.core.result import Result
from crossmatch.core.standing import Standing
from crossmatch.metrics.table import metric
from crossmatch.report import plots, trial_plots
from crossmatch.report.analysis_plots import gap_sections
from crossmatch.report.gate import gate_tables
from crossmatch.report.published import beside
from crossmatch.report.tables import Table, by_task, findings, is_trials, results_table
from crossmatch.report.variants import alteration_tables, caption_tables, plain

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
    usual = plain(results)
    sections = [
        {
            "table": table,
            "findings": findings(mine),
            "figures": _trial_figures(mine) if is_trials(mine) else _figures(mine),
            "trials": is_trials(mine),
            "signatures": [*(r.system for r in mine), *dict.fromkeys(row.signature for r in mine for row in r.rows)],
        }
        for table, mine in zip(results_table(usual), by_task(usual), strict=True)
    ]
    sections += _analyses(results)
    for table in beside(results) if published else ():
        sections.append({"table": table, "findings": (), "figures": [], "signatures": []})
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        page.render(sections=sections, models=list(dict.fromkeys(r.model for r in usual)), version=__version__),
        encoding="utf-8",
    )
    return path


def _analyses(results: Sequence[Result]) -> list[dict[str, Any]]:
    """Sections about what was run beside the models: altered queries, other captions, the gap between directions, the gate."""
    found: list[dict[str, Any]] = []
    for table, mine in alteration_tables(results):
        about = (
            "Negation, permutation and reversal change what is said, or break it: a model that reads the query should change its "
            "mind. Synonym and hypernym should change little. Of all trials, altered or not (BISON, Figure 9)."
        )
        found.append(_section(table, [("Altered queries", about, trial_plots.alteration_chart(mine))]))
    found += [_section(table, []) for table, _ in caption_tables(results)]
    found += [_section(table, figures) for table, figures in gap_sections(plain(results))]
    must = "Scorers that know nothing must get what theory gives them."
    found += [_section(table, [], (must, *table.notes)) for table in gate_tables(results)]
    return found


def _section(table: Table, figures: list[tuple[str, str, str]], said: tuple[str, ...] = ()) -> dict[str, Any]:
    return {"table": table, "findings": said, "figures": figures, "signatures": []}


def _trial_figures(results: list[Result]) -> list[tuple[str, str, str]]:
    names = list(dict.fromkeys(row.metric for r in results for row in r.rows))
    main = "group" if "group" in names else names[0]
    about = "With 95 % intervals; the grey tick is chance."
    figures = [("Choices", about, trial_plots.by_choice(results, ""))] if len(names) > 1 else []
    if any(len(r.parts) > 1 for r in results):
        figures.append((f"{metric(main).label} by category", about, trial_plots.by_category(results, main)))
    return figures


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
