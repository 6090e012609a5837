"""How well caption metrics agree with people, as tables and pictures; published numbers stand beside, in parentheses."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from itertools import pairwise
from types import MappingProxyType
from typing import Any

import numpy as np

from crossmatch.captions.agree import PreferenceAgreement, RatingAgreement
from crossmatch.captions.human_scale import HumanScale
from crossmatch.captions.reference_curve import Curve, Point
from crossmatch.captions.sensitivity import Noticed
from crossmatch.report.analysis_page import Panel
from crossmatch.report.caption_plots import Bar, curve_panel, difference_panel, forest_panel, level_panel, sensitivity_panel
from crossmatch.report.captions import p_value
from crossmatch.report.tables import NONE, Table

LABELS = {"tau-b": "τ-b", "tau-c": "τ-c", "spearman": "ρ", "pearson": "r"}
PRINTED = {"tau-c": "tau", "spearman": "rho"}  # the paper does not say which τ; on Flickr8k-Expert its numbers are τ-c
MAIN = "tau-c"
SHOWN = ("tau-c", "tau-b", "spearman", "pearson")
LEGEND = "(in parentheses) printed in jiang2019tiger, Tables 1 and 2; its CIDEr is CIDEr-D. Why some differ: docs/results.md"


@cache
def printed() -> Mapping[tuple[str, str, str], str]:
    """Published numbers by study, metric and measure, as they were printed."""
    text = files("crossmatch.report").joinpath("agreement_published.csv").read_text(encoding="utf-8")
    rows = csv.DictReader(text.splitlines())
    return MappingProxyType({(row["study"], row["metric"], row["measure"]): row["printed"] for row in rows})


def agreement_tables(found: RatingAgreement | PreferenceAgreement) -> list[Table]:
    """The numbers of each metric, and which metrics differ."""
    if isinstance(found, RatingAgreement):
        return [_correlations(found), *_differences(found)]
    return [_accuracies(found), *_differences(found)]


def _correlations(found: RatingAgreement) -> Table:
    order = np.argsort(-found.values[:, found.coefficients.index(MAIN)], kind="stable").tolist()
    known = any(study == found.said.name for study, _, _ in printed())
    rows = []
    for m in order:
        name = found.metrics[m]
        cells = [name]
        for coefficient in SHOWN:
            c = found.coefficients.index(coefficient)
            cells.append(f"{found.values[m, c]:.3f} [{found.low[m, c]:.3f}, {found.high[m, c]:.3f}]")
            if coefficient in PRINTED and known:
                cells.append(_published(found.said.name, name, PRINTED[coefficient]))
        rows.append(tuple(cells))
    head = [""]
    for coefficient in SHOWN:
        head += [LABELS[coefficient], *(("published",) if coefficient in PRINTED and known else ())]
    counted = "each rating is an observation" if found.rating == "each" else "a caption counts with its mean rating"
    images = len(set(found.said.images.tolist()))
    title = f"{found.said.name}: {len(found.said):,} captions of {images:,} images, {len(found.said.values):,} ratings"
    told = {
        "candidates that are references of their image were left out": found.excluded,
        "candidates that are references of their image were compared with the others": found.left_out,
        "candidates without known references were left out": found.said.unreferenced,
    }
    notes = [f"95 % intervals by the jackknife over images; {counted}.", *(f"{n:,} {what}." for what, n in told.items() if n)]
    return Table(title, (tuple(head),), tuple(rows), 1, (*notes, *_legend(rows)))


def _accuracies(found: PreferenceAgreement) -> Table:
    order = np.argsort(-found.values[:, -1], kind="stable").tolist()
    rows = []
    for m in order:
        name, cells = found.metrics[m], [found.metrics[m]]
        for g, group in enumerate(found.groups):
            low, high = 100 * found.low[m, g], 100 * found.high[m, g]
            value = f"{100 * found.values[m, g]:.2f}" + (f" [{low:.1f}, {high:.1f}]" if g == len(found.groups) - 1 else "")
            cells.append(" ".join(filter(None, (value, _published(found.said.name, name, group)))))
        rows.append((*cells, f"{found.tied[m, -1]:,}"))
    counts = [f"{found.groups[g]} {n:,}" for g, n in enumerate(found.counts.tolist()[:-1])]
    title = f"{found.said.name}: which of two captions people prefer ({', '.join(counts)} pairs)"
    rule = {"wrong": "wrong", "half": "half right", "right": "right"}[found.ties]
    notes = [f"Percent; equal scores are {rule}; the last column counts them.", *_legend(rows)]
    if set(found.groups) > {"HC", "HI", "HM", "MM"}:
        notes.insert(
            1, "HC: two right captions by people; HI: one of them of another image; HM: by a person and a machine; MM: by machines."
        )
    return Table(title, (("", *found.groups, "equal"),), tuple(rows), 1, tuple(notes))


def _published(study: str, metric: str, measure: str) -> str:
    number = printed().get((study, metric, measure))
    return f"({number})" if number else ""


def _legend(rows: Sequence[Sequence[str]]) -> tuple[str, ...]:
    return (LEGEND,) if any("(" in cell for row in rows for cell in row[1:]) else ()


def _differences(found: RatingAgreement | PreferenceAgreement) -> list[Table]:
    """Each metric against the next lower one; all pairs are in the JSON."""
    if not len(found.pairs):
        return []
    column = found.coefficients.index(MAIN) if isinstance(found, RatingAgreement) else -1
    order = np.argsort(-found.values[:, column], kind="stable").tolist()
    place = {tuple(pair): n for n, pair in enumerate(found.pairs.tolist())}
    rows = []
    for one, other in pairwise(order):
        n, sign = (place[one, other], 1) if (one, other) in place else (place[other, one], -1)
        rows.append((f"{found.metrics[one]} – {found.metrics[other]}", *_difference(found, n, sign)))
    head: tuple[str, ...]
    notes: tuple[str, ...]
    if isinstance(found, RatingAgreement):
        head = ("", "Δ τ-c", "95 %", "p", "Δ r (mean rating)", f"t({found.freedom:,})", "p (Williams)")
        notes = (
            f"Δ τ-c: {found.gaps.test}. Williams' test: of Pearson's r with the mean rating; it takes captions as independent, "
            "and is too sure where several are of one image.",
            f"p corrected by Holm over {len(found.pairs)} pairs.",
        )
    else:
        head = ("", "Δ mean", "95 %", "p")
        notes = (f"{found.gaps.test}; p corrected by Holm over {len(found.pairs)} pairs of metrics.",)
    return [Table(f"{found.said.name}: do neighbours differ?", (head,), tuple(rows), 1, notes)]


def _difference(found: RatingAgreement | PreferenceAgreement, n: int, sign: int) -> tuple[str, ...]:
    if isinstance(found, PreferenceAgreement):
        gaps = [100 * sign * float(part[n]) for part in (found.gaps.value, found.gaps.low, found.gaps.high)]
        return (
            f"{gaps[0] + 0.0:.2f}".replace("-0.00", "0.00"),
            f"{min(gaps[1:]):.2f} – {max(gaps[1:]):.2f}",
            p_value(float(found.gaps.p[n])),
        )
    c = found.coefficients.index(MAIN)
    value, low, high = (sign * float(part[n, c]) for part in (found.gaps.value, found.gaps.low, found.gaps.high))
    first, second = found.pairs[n].tolist()
    apart = sign * float(found.williams_r[first] - found.williams_r[second])
    return (
        f"{value:.3f}", f"{min(low, high):.3f} – {max(low, high):.3f}",
        p_value(float(found.gaps.p[n, c]), len(found.pairs) * found.gaps.floor),
        f"{apart:.3f}", f"{sign * found.t[n]:.2f}", p_value(float(found.t_p[n])),
    )  # fmt: skip


def agreement_panels(found: RatingAgreement | PreferenceAgreement) -> list[Panel]:
    """A forest of the metrics; for ratings, also the mean score of the captions that people rated alike."""
    column, scale, measure = -1, 100.0, "mean"
    if isinstance(found, RatingAgreement):
        column, scale, measure = found.coefficients.index(MAIN), 1.0, "tau"
    bars = []
    for m, name in enumerate(found.metrics):
        number = printed().get((found.said.name, name, measure))
        value, low, high = (scale * float(part[m, column]) for part in (found.values, found.low, found.high))
        bars.append(Bar(name, value, low, high, float(number) if number else None))
    title = f"{found.said.name}: which metric agrees with people?"
    if isinstance(found, RatingAgreement):
        panel = forest_panel(bars, title, "Kendall's τ-c with the ratings", 0.0)
        return [panel, level_panel(found.metrics, found.levels, found.level_means, found.level_counts)]
    return [forest_panel(bars, title, "pairs in which the metric prefers what people prefer, percent", 50.0)]


def curve_table(curve: Curve, name: str) -> Table:
    """A row for each metric and group, a column for each number of references."""
    points = curve.points
    counts = sorted({point.references for point in points})
    held = {(point.metric, point.group, point.references): point for point in points}
    rows = []
    for metric in dict.fromkeys(point.metric for point in points):
        for n, group in enumerate(dict.fromkeys(point.group for point in points)):
            cells = [_point(held.get((metric, group, k)), curve.measure) for k in counts]
            rows.append((metric if n == 0 else "", group, *cells))
    draws = max(point.draws for point in points)
    notes = [f"{_measured(curve.measure)}; mean over {draws} draw{'s' if draws > 1 else ''} of the references."]
    if any(point.least < point.most for point in points):
        notes.append("In brackets, where one more draw would lie with 95 %.")
    return Table(f"{name}: by the number of references", (("", "", *map(str, counts)),), tuple(rows), 2, tuple(notes))


def _measured(measure: str) -> str:
    return "Percent of pairs" if measure == "accuracy" else f"Correlation {LABELS[measure]}"


def _point(point: Point | None, measure: str) -> str:
    if point is None or not np.isfinite(point.value):
        return NONE
    scale, digits = (100.0, 1) if measure == "accuracy" else (1.0, 3)
    value, least, most = (f"{scale * number:.{digits}f}" for number in (point.value, point.least, point.most))
    return f"{value} [{least}, {most}]" if point.least < point.most else value


def sensitivity_table(rows: Sequence[Noticed], name: str) -> Table:
    """A row for each metric; a column for each component and kind of property."""
    parts = list(dict.fromkeys((row.component, row.attribute) for row in rows))
    held = {(row.metric, row.component, row.attribute): row for row in rows}
    body = []
    for metric in dict.fromkeys(row.metric for row in rows):
        mine = [held[metric, *part] for part in parts]
        body.append((metric, *(f"{100 * row.right.value:.1f} ({100 * row.ties:.0f} =)" for row in mine)))
    counts = [f"{held[body[0][0], *part].probes:,}" for part in parts]
    body.append(("probes", *counts))
    head = ("", *(kind or component for component, kind in parts))
    notes = (
        "Percent of probes in which the caption with the near word scores strictly higher than the one with the far word; in "
        "parentheses, percent with equal scores, which are wrong. The last columns are kinds of properties. Document "
        "frequencies: the captions of each image, every image once.",
    )
    return Table(f"{name}: which word was changed?", (head,), tuple(body), 1, notes)


def scale_table(found: Mapping[str, HumanScale], name: str) -> Table:
    """Metrics put on people's scale: how often they give the very rating, or one next to it."""
    rows = []
    for metric, one in found.items():
        exact, near = (f"{100 * s.value:.1f} [{100 * s.low:.1f}, {100 * s.high:.1f}]" for s in (one.exact, one.within_one))
        rows.append((metric, exact, near, f"{one.off:.3f}"))
    one = next(iter(found.values()))
    chance = [float(one.unrelated[np.abs(one.differences) <= reach].sum()) for reach in (0.0, 1.0)]
    off = float(np.abs(one.differences) @ one.unrelated)
    rows.append(("knows the shares alone", f"{100 * chance[0]:.1f}", f"{100 * chance[1]:.1f}", f"{off:.3f}"))
    head = ("", "the very rating, %", "within one, %", "mean distance")
    notes = ("Captions in the order of their score are given ratings, each as often as people gave it; equal scores share.",)
    return Table(f"{name}: metrics on people's scale", (head,), tuple(rows), 1, notes)


def more_panels(
    curve: Curve | None = None, noticed: Sequence[Noticed] = (), scales: Mapping[str, HumanScale] | None = None
) -> list[Panel]:
    """Pictures of the reference curve, of sensitivity, and of metrics on people's scale."""
    panels = []
    if curve is not None and any(np.isfinite(point.value) for point in curve.points):
        options: dict[str, Any] = {} if curve.measure == "accuracy" else {"what": _measured(curve.measure), "best": 1.0}
        panels.append(curve_panel(curve.points, **options))
    if noticed:
        panels.append(sensitivity_panel(noticed))
        panels += [sensitivity_panel(noticed, kinds=True)] if any(row.attribute for row in noticed) else []
    return panels + ([difference_panel(scales)] if scales else [])
