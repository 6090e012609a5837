"""Tables and figures of the agreement of caption metrics with people; published numbers are in parentheses."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from itertools import pairwise
from types import MappingProxyType
from typing import Any

import numpy as np

from crossmatch.captions.human.metric_agreement import PreferenceAgreement, RatingAgreement
from crossmatch.captions.human.rating_scale_matching import RatingScaleMatch
from crossmatch.captions.human.reference_curve import CurvePoint, ReferenceCurve
from crossmatch.captions.human.sensitivity import SensitivityRow
from crossmatch.report.captions.agreement_plots import (
    ForestBar,
    curve_panel,
    difference_panel,
    forest_panel,
    level_panel,
    sensitivity_panel,
)
from crossmatch.report.pages import Panel
from crossmatch.report.tables import EMPTY_CELL, Table, format_bounded_p_value

COEFFICIENT_LABELS = {"tau-b": "τ-b", "tau-c": "τ-c", "spearman": "ρ", "pearson": "r"}
# Names in the csv file. The paper does not say which τ it uses; its numbers on Flickr8k-Expert are τ-c.
PRINTED_COEFFICIENTS = {"tau-c": "tau", "spearman": "rho"}
MAIN = "tau-c"
COLUMNS = ("tau-c", "tau-b", "spearman", "pearson")
LEGEND = "in parentheses: published in jiang2019tiger, Tables 1 and 2, whose CIDEr is CIDEr-D"


@cache
def load_printed_numbers() -> Mapping[tuple[str, str, str], str]:
    """Published numbers by study, metric and measure, as printed."""
    text = files("crossmatch.report").joinpath("agreement_published.csv").read_text(encoding="utf-8")
    rows = csv.DictReader(text.splitlines())
    return MappingProxyType({(row["study"], row["metric"], row["measure"]): row["printed"] for row in rows})


def agreement_tables(agreement: RatingAgreement | PreferenceAgreement) -> list[Table]:
    """A table of the agreement of each metric, and one of the differences between neighbours."""
    if isinstance(agreement, RatingAgreement):
        return [_correlation_table(agreement), *_difference_tables(agreement)]
    return [_accuracy_table(agreement), *_difference_tables(agreement)]


def _correlation_table(agreement: RatingAgreement) -> Table:
    order = np.argsort(-agreement.values[:, agreement.coefficients.index(MAIN)], kind="stable").tolist()
    has_published = any(study == agreement.study.name for study, _, _ in load_printed_numbers())
    rows = []
    for m in order:
        name = agreement.metrics[m]
        cells = [name]
        for coefficient in COLUMNS:
            c = agreement.coefficients.index(coefficient)
            cells.append(f"{agreement.values[m, c]:.3f} [{agreement.low[m, c]:.3f}, {agreement.high[m, c]:.3f}]")
            if coefficient in PRINTED_COEFFICIENTS and has_published:
                cells.append(_published(agreement.study.name, name, PRINTED_COEFFICIENTS[coefficient]))
        rows.append(tuple(cells))
    head = [""]
    for coefficient in COLUMNS:
        head += [
            COEFFICIENT_LABELS[coefficient],
            *(("published",) if coefficient in PRINTED_COEFFICIENTS and has_published else ()),
        ]
    observations = "each rating is an observation" if agreement.rating == "each" else "each caption counts with its mean rating"
    images = len(set(agreement.study.images.tolist()))
    title = (
        f"{agreement.study.name}: {len(agreement.study):,} captions of {images:,} images, {len(agreement.study.values):,} ratings"
    )
    counts = {
        "candidates that are references of their image were excluded": agreement.excluded,
        "candidates that are references of their image were compared with the other references": agreement.left_out,
        "candidates without known references were excluded": agreement.study.unreferenced,
    }
    notes = [
        f"95 % intervals by the jackknife over images; {observations}.",
        *(f"{n:,} {text}." for text, n in counts.items() if n),
    ]
    return Table(title, (tuple(head),), tuple(rows), 1, (*notes, *_legend(rows)))


def _accuracy_table(agreement: PreferenceAgreement) -> Table:
    order = np.argsort(-agreement.values[:, -1], kind="stable").tolist()
    rows = []
    for m in order:
        name, cells = agreement.metrics[m], [agreement.metrics[m]]
        for g, group in enumerate(agreement.groups):
            low, high = 100 * agreement.low[m, g], 100 * agreement.high[m, g]
            value = f"{100 * agreement.values[m, g]:.2f}" + (f" [{low:.1f}, {high:.1f}]" if g == len(agreement.groups) - 1 else "")
            cells.append(" ".join(filter(None, (value, _published(agreement.study.name, name, group)))))
        rows.append((*cells, f"{agreement.tie_counts[m, -1]:,}"))
    counts = [f"{agreement.groups[g]} {n:,}" for g, n in enumerate(agreement.counts.tolist()[:-1])]
    title = f"{agreement.study.name}: which of two captions people prefer ({', '.join(counts)} pairs)"
    rule = {"wrong": "wrong", "half": "half right", "right": "right"}[agreement.ties]
    notes = [f"Percent; pairs with equal scores are {rule}, the last column counts them.", *_legend(rows)]
    if set(agreement.groups) > {"HC", "HI", "HM", "MM"}:
        notes.insert(
            1,
            "HC: two human captions; HI: one is of another image; HM: a human and a generated caption; MM: two generated captions.",
        )
    return Table(title, (("", *agreement.groups, "equal"),), tuple(rows), 1, tuple(notes))


def _published(study: str, metric: str, measure: str) -> str:
    number = load_printed_numbers().get((study, metric, measure))
    return f"({number})" if number else ""


def _legend(rows: Sequence[Sequence[str]]) -> tuple[str, ...]:
    return (LEGEND,) if any("(" in cell for row in rows for cell in row[1:]) else ()


def _difference_tables(agreement: RatingAgreement | PreferenceAgreement) -> list[Table]:
    """The difference of each metric to the next lower one; the JSON output has all pairs."""
    if not len(agreement.metric_pairs):
        return []
    column = agreement.coefficients.index(MAIN) if isinstance(agreement, RatingAgreement) else -1
    order = np.argsort(-agreement.values[:, column], kind="stable").tolist()
    pair_index = {tuple(pair): n for n, pair in enumerate(agreement.metric_pairs.tolist())}
    rows = []
    for higher, lower in pairwise(order):
        n, sign = (pair_index[higher, lower], 1) if (higher, lower) in pair_index else (pair_index[lower, higher], -1)
        rows.append((f"{agreement.metrics[higher]} – {agreement.metrics[lower]}", *_difference_cells(agreement, n, sign)))
    head: tuple[str, ...]
    notes: tuple[str, ...]
    if isinstance(agreement, RatingAgreement):
        head = ("", "Δ τ-c", "95 %", "p", "Δ r (mean rating)", f"t({agreement.degrees_of_freedom:,})", "p (Williams)")
        notes = (
            f"Δ τ-c: {agreement.differences.test}. Williams' test: Pearson's r with the mean rating; it treats captions as "
            "independent, so its p is too small if several are of one image.",
            f"p corrected by Holm over {len(agreement.metric_pairs)} pairs.",
        )
    else:
        head = ("", "Δ mean", "95 %", "p")
        notes = (f"{agreement.differences.test}; p corrected by Holm over {len(agreement.metric_pairs)} pairs of metrics.",)
    return [Table(f"{agreement.study.name}: differences between neighbours", (head,), tuple(rows), 1, notes)]


def _difference_cells(agreement: RatingAgreement | PreferenceAgreement, n: int, sign: int) -> tuple[str, ...]:
    if isinstance(agreement, PreferenceAgreement):
        ends = [
            100 * sign * float(part[n])
            for part in (agreement.differences.value, agreement.differences.low, agreement.differences.high)
        ]
        return (
            f"{ends[0] + 0.0:.2f}".replace("-0.00", "0.00"),
            f"{min(ends[1:]):.2f} – {max(ends[1:]):.2f}",
            format_bounded_p_value(float(agreement.differences.p[n])),
        )
    c = agreement.coefficients.index(MAIN)
    value, low, high = (
        sign * float(part[n, c]) for part in (agreement.differences.value, agreement.differences.low, agreement.differences.high)
    )
    first, second = agreement.metric_pairs[n].tolist()
    r_difference = sign * float(agreement.williams_r[first] - agreement.williams_r[second])
    return (
        f"{value:.3f}", f"{min(low, high):.3f} – {max(low, high):.3f}",
        format_bounded_p_value(float(agreement.differences.p[n, c]), len(agreement.metric_pairs) * agreement.differences.min_p),
        f"{r_difference:.3f}", f"{sign * agreement.williams_t[n]:.2f}", format_bounded_p_value(float(agreement.williams_p[n])),
    )  # fmt: skip


def agreement_panels(agreement: RatingAgreement | PreferenceAgreement) -> list[Panel]:
    """A forest plot of the metrics; for ratings, also the mean score by rating."""
    column, scale, measure = -1, 100.0, "mean"
    if isinstance(agreement, RatingAgreement):
        column, scale, measure = agreement.coefficients.index(MAIN), 1.0, "tau"
    bars = []
    for m, name in enumerate(agreement.metrics):
        number = load_printed_numbers().get((agreement.study.name, name, measure))
        value, low, high = (scale * float(part[m, column]) for part in (agreement.values, agreement.low, agreement.high))
        bars.append(ForestBar(name, value, low, high, float(number) if number else None))
    title = f"{agreement.study.name}: agreement of metrics with people"
    if isinstance(agreement, RatingAgreement):
        panel = forest_panel(bars, title, "Kendall's τ-c with the ratings", 0.0)
        return [panel, level_panel(agreement.metrics, agreement.levels, agreement.level_means, agreement.level_counts)]
    return [forest_panel(bars, title, "pairs in which metric and people agree, percent", 50.0)]


def curve_table(curve: ReferenceCurve, name: str) -> Table:
    """A row for each metric and group, a column for each number of references."""
    points = curve.points
    counts = sorted({point.references for point in points})
    by_key = {(point.metric, point.group, point.references): point for point in points}
    rows = []
    for metric in dict.fromkeys(point.metric for point in points):
        for n, group in enumerate(dict.fromkeys(point.group for point in points)):
            cells = [_format_point(by_key.get((metric, group, k)), curve.measure) for k in counts]
            rows.append((metric if n == 0 else "", group, *cells))
    draws = max(point.draws for point in points)
    notes = [f"{_measure_label(curve.measure)}; mean over {draws} draw{'s' if draws > 1 else ''} of the references."]
    if any(point.draw_low < point.draw_high for point in points):
        notes.append("In brackets: 95 % prediction interval of one more draw.")
    return Table(f"{name}: by number of references", (("", "", *map(str, counts)),), tuple(rows), 2, tuple(notes))


def _measure_label(measure: str) -> str:
    return "Percent of pairs" if measure == "accuracy" else f"Correlation {COEFFICIENT_LABELS[measure]}"


def _format_point(point: CurvePoint | None, measure: str) -> str:
    if point is None or not np.isfinite(point.value):
        return EMPTY_CELL
    scale, digits = (100.0, 1) if measure == "accuracy" else (1.0, 3)
    value, least, most = (f"{scale * number:.{digits}f}" for number in (point.value, point.draw_low, point.draw_high))
    return f"{value} [{least}, {most}]" if point.draw_low < point.draw_high else value


def sensitivity_table(rows: Sequence[SensitivityRow], name: str) -> Table:
    """A row for each metric; a column for each component and kind of property."""
    parts = list(dict.fromkeys((row.component, row.attribute) for row in rows))
    by_key = {(row.metric, row.component, row.attribute): row for row in rows}
    body = []
    for metric in dict.fromkeys(row.metric for row in rows):
        metric_rows = [by_key[metric, *part] for part in parts]
        body.append((metric, *(f"{100 * row.correct.value:.1f} ({100 * row.ties:.0f} =)" for row in metric_rows)))
    counts = [f"{by_key[body[0][0], *part].probes:,}" for part in parts]
    body.append(("probes", *counts))
    head = ("", *(kind or component for component, kind in parts))
    notes = (
        "Percent of probes in which the caption with the near word scores strictly higher than the one with the far word; in "
        "parentheses, percent with equal scores, which count as wrong. The last columns are kinds of properties. Document "
        "frequencies count each image once.",
    )
    return Table(f"{name}: sensitivity to changed words", (head,), tuple(body), 1, notes)


def scale_table(matches: Mapping[str, RatingScaleMatch], name: str) -> Table:
    """Metrics mapped to the rating scale: how often they equal the rating, or differ by at most one."""
    rows = []
    for metric, match in matches.items():
        exact, near = (f"{100 * s.value:.1f} [{100 * s.low:.1f}, {100 * s.high:.1f}]" for s in (match.exact, match.within_one))
        rows.append((metric, exact, near, f"{match.mean_distance:.3f}"))
    match = next(iter(matches.values()))
    chance = [float(match.chance_shares[np.abs(match.differences) <= reach].sum()) for reach in (0.0, 1.0)]
    distance = float(np.abs(match.differences) @ match.chance_shares)
    rows.append(("chance", f"{100 * chance[0]:.1f}", f"{100 * chance[1]:.1f}", f"{distance:.3f}"))
    head = ("", "equal, %", "within one, %", "mean distance")
    notes = (
        "Captions are sorted by score and assigned to the rating levels, each as frequent as among the human ratings; "
        "equal scores get the same mixture. Chance assigns levels at random.",
    )
    return Table(f"{name}: metrics on the rating scale", (head,), tuple(rows), 1, notes)


def analysis_panels(
    curve: ReferenceCurve | None = None,
    sensitivity: Sequence[SensitivityRow] = (),
    scales: Mapping[str, RatingScaleMatch] | None = None,
) -> list[Panel]:
    """Figures of the reference curve, of sensitivity, and of metrics on the rating scale."""
    panels = []
    if curve is not None and any(np.isfinite(point.value) for point in curve.points):
        options: dict[str, Any] = {} if curve.measure == "accuracy" else {"label": _measure_label(curve.measure), "best": 1.0}
        panels.append(curve_panel(curve.points, **options))
    if sensitivity:
        panels.append(sensitivity_panel(sensitivity))
        panels += [sensitivity_panel(sensitivity, kinds=True)] if any(row.attribute for row in sensitivity) else []
    return panels + ([difference_panel(scales)] if scales else [])
