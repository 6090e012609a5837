"""The report: one self-contained html page with tables and figures of results."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from crossmatch.data.errors import CrossmatchError
from crossmatch.data.rank_counts import RankCounts
from crossmatch.data.result import Result, shorten_model_name
from crossmatch.metrics.metric_table import metric
from crossmatch.report import result_plots
from crossmatch.report.analysis.analysis_plots import direction_sections
from crossmatch.report.pages import render_template, write_output
from crossmatch.report.published_results import tables_with_published
from crossmatch.report.query_variants import alteration_tables, caption_choice_tables, main_results
from crossmatch.report.tables import Table, collect_notes, group_by_task, has_only_trials, result_tables
from crossmatch.report.trust_gate_table import gate_tables

DIRECTION_TITLES = {
    "i2t": "Captions for an image", "t2i": "Images for a caption", "t2t": "Captions similar to a caption",
    "i2i": "Images similar to an image",
}  # fmt: skip
Figure = tuple[str, str, str]  # title, description, svg


def write_report(results: Sequence[Result], path: Path, published: bool = False) -> Path:
    """Write a self-contained html page.

    Args:
        results: The results to show, at least one.
        path: The file to write.
        published: Also show published numbers, in separate tables.

    Returns:
        The path.

    >>> from crossmatch import evaluate
    >>> results = [evaluate(model, "diorama/retrieval", size="tiny", samples=100) for model in ("random", "oracle")]
    >>> page = write_report(results, folder / "report.html").read_text()
    >>> page.count("<table"), page.count("<svg")            # a table with both models, and four figures
    (1, 4)
    """
    if not results:
        raise CrossmatchError("A report needs at least one result. Create one with: crossmatch run -m MODEL -t TASK")
    main = main_results(results)
    sections = [
        {
            "table": table,
            "notes": collect_notes(group),
            "figures": _trial_figures(group) if has_only_trials(group) else _retrieval_figures(group),
            "trials": has_only_trials(group),
            "signatures": [*(r.system for r in group), *dict.fromkeys(row.signature for r in group for row in r.rows)],
        }
        for table, group in zip(result_tables(main), group_by_task(main), strict=True)
    ]
    sections += _analysis_sections(results)
    sections += [_section(table, []) for table in (tables_with_published(results) if published else ())]
    page = render_template("report.html", sections=sections, models=list(dict.fromkeys(shorten_model_name(r.model) for r in main)))
    return write_output(path, page.encode())


def _analysis_sections(results: Sequence[Result]) -> list[dict[str, Any]]:
    """Sections about altered queries, other captions, the gap between directions, and the trust gate."""
    sections: list[dict[str, Any]] = []
    for table, variants in alteration_tables(results):
        description = (
            "Negation, permutation and reversal change or destroy the meaning: a model that reads the query should change its "
            "prediction. Synonym and hypernym should change little. Shares of all trials, altered or not (BISON, Figure 9)."
        )
        sections.append(_section(table, [("Altered queries", description, result_plots.plot_alterations(variants))]))
    sections += [_section(table, []) for table, _ in caption_choice_tables(results)]
    sections += [_section(table, figures) for table, figures in direction_sections(main_results(results))]
    gate_note = "Scorers without knowledge must get the value that theory predicts."
    sections += [_section(table, [], (gate_note, *table.notes)) for table in gate_tables(results)]
    return sections


def _section(table: Table, figures: list[Figure], notes: tuple[str, ...] = ()) -> dict[str, Any]:
    return {"table": table, "notes": notes, "figures": figures, "signatures": []}


def _trial_figures(results: list[Result]) -> list[Figure]:
    names = list(dict.fromkeys(row.metric for r in results for row in r.rows))
    main_metric = "group" if "group" in names else names[0]
    description = "With 95 % intervals; the grey tick is chance."
    figures = [("Choices", description, result_plots.plot_trial_metrics(results, ""))] if len(names) > 1 else []
    if any(len(r.parts) > 1 for r in results):
        figures.append(
            (f"{metric(main_metric).label} by category", description, result_plots.plot_categories(results, main_metric))
        )
    return figures


def _retrieval_figures(results: list[Result]) -> list[Figure]:
    ranked = [part for r in results for part in r.parts.values() if isinstance(part.evidence, RankCounts)]
    has_percent = any(row.unit == "%" for r in results for row in r.rows)
    figures = []
    for direction in dict.fromkeys(part.direction for part in ranked):
        title = DIRECTION_TITLES.get(direction, direction)
        judgements = list(dict.fromkeys(part.judgements for part in ranked if part.direction == direction))
        circles = dashes = ""
        if len(judgements) == 2:
            circles = f" Open circle: by {judgements[0]}; full circle: by {judgements[1]}."
            dashes = f" Dashed: by {judgements[0]}; solid: by {judgements[1]}."
        if has_percent:
            description = f"Each metric with its 95 % interval; the grey tick is chance.{circles}"
            figures.append((f"{title} ({direction})", description, result_plots.plot_metrics(results, direction)))
        description = f"Share of queries with a hit among the first k.{dashes}"
        figures.append((f"{title}: hits by depth", description, result_plots.plot_hit_curve(results, direction)))
    return figures
