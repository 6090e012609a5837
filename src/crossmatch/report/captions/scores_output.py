"""Scored captions as a table, a csv file, and a page with the worst and the best captions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from crossmatch.captions.caption_metric_table import CAPTION_METRICS, format_option
from crossmatch.captions.score_captions import ScoredCaptions, compare_captions
from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.data.io.spreadsheet_csv import format_csv
from crossmatch.report.pages import Panel, image_data_url, render_panels, render_template, write_output
from crossmatch.report.tables import EMPTY_CELL, Table, format_bounded_p_value

if TYPE_CHECKING:
    from PIL.Image import Image

CANDIDATES_COLUMN, CAPTION_COLUMN = "candidates", "caption"  # columns of the csv file that are no scores
MAX_CARDS = 12  # captions in a group
MAX_REFERENCES = 5  # of a caption
MAX_GROUNDED = 3  # cards of a group with drawn regions, which make a page large
IMAGE_SIZE = 320  # pixels of an image on the page
SORT_METRICS = ("cider-d", "tiger", "spice", "meteor", "ref-clip-score")  # captions are sorted by the first one that was computed


def scores_table(scored: Sequence[ScoredCaptions]) -> Table:
    """A row for each metric; for each set of candidates its value and interval, and p of the difference to the first set."""
    first = scored[0]
    comparisons = {(c.metric, c.second): c for c in compare_captions(scored)} if len(scored) > 1 else {}
    header = ["", *(text for n, captions in enumerate(scored) for text in (captions.name, "95 %", *(("p",) if n else ())))]
    rows = []
    for metric in first.results:
        cells = [metric]
        for n, captions in enumerate(scored):
            low, high = captions.interval(metric)
            cells += [f"{captions[metric].scores.value:.4f}", EMPTY_CELL if math.isnan(low) else f"{low:.4f} – {high:.4f}"]
            if n:
                comparison = comparisons[metric, captions.name]
                cells.append(format_bounded_p_value(comparison.p, comparison.min_p))
        rows.append(tuple(cells))
    notes = ["95 % intervals: bootstrap over images. --json and -o show the signature of every number."]
    cider_signatures = [result.signature for metric, result in first.results.items() if metric.startswith("cider")]
    if any(f"|df:references/{len(first.corpus)}|" in signature for signature in cider_signatures):
        notes.append(
            f"CIDEr: document frequencies of the references of these {len(first.corpus):,} images; --frequencies uses others."
        )
    if comparisons:
        tests = f"{len(comparisons)} test{'s' if len(comparisons) > 1 else ''}"
        notes.append(
            f"p: of the difference to {first.name}, by the paired bootstrap over images, or by Student's t if no replicate has the "
            f"opposite sign; Holm's correction over {tests}."
        )
    counts = first.corpus.references_per_image
    per_image = str(counts.min()) if counts.min() == counts.max() else f"{counts.min()} to {counts.max()}"
    title = f"{len(first.corpus):,} captions, {per_image} reference{'' if per_image == '1' else 's'} each"
    return Table(title, (tuple(header),), tuple(rows), 1, tuple(notes))


def metrics_table() -> Table:
    """All caption metrics: name, best value, requirements, options, description and source."""
    rows = [
        (
            ", ".join(metric.names) if len(metric.names) < 4 else f"{metric.names[0]} … {metric.names[-1]}",
            f"{metric.best:g}",
            ", ".join(need for need in metric.needs if need != "frequencies"),
            ", ".join(f"{key}={format_option(value)}" for key, value in metric.options),
            metric.description,
            metric.source,
        )
        for metric in CAPTION_METRICS
    ]
    return Table("Caption metrics", (("name", "best", "needs", "options", "about", "source"),), tuple(rows), 6)


def choose_sort_metric(names: Sequence[str], by: str | None) -> str:
    """The metric that captions are sorted by: the requested one, or the first of `SORT_METRICS` that was computed.

    >>> choose_sort_metric(["bleu-4", "cider-d", "rouge-l"], None)
    'cider-d'
    """
    if by is None:
        return next((name for name in SORT_METRICS if name in names), names[-1])
    if by not in names:
        raise UsageError(f"Cannot sort captions by {by!r}, which was not computed. Choose from: {', '.join(names)}.")
    return by


def write_scores_csv(scored: Sequence[ScoredCaptions], path: Path) -> Path:
    """Write a csv file with every caption and its score by each metric, in full precision."""
    has_several = len(scored) > 1
    header = [*((CANDIDATES_COLUMN,) if has_several else ()), "image_id", CAPTION_COLUMN, *scored[0].results]
    rows: list[Sequence[object]] = []
    for captions in scored:
        columns = [result.scores.values.tolist() for result in captions.results.values()]
        name = (captions.name,) if has_several else ()
        for n, image in enumerate(captions.corpus.ids.tolist()):
            rows.append([*name, image, _candidate_text(captions, n), *(column[n] for column in columns)])
    return write_output(path, format_csv(header, rows).encode())


@dataclass(frozen=True)
class CaptionCard:
    """One caption on the page."""

    image: str
    caption: str
    references: tuple[str, ...]
    hidden_references: int
    scores: tuple[tuple[str, str], ...]  # metric and value
    picture: str = ""  # a data url
    grounding: str = ""  # svg
    other_caption: str = ""  # the caption of another set of candidates, with its name


@dataclass(frozen=True)
class CardGroup:
    """Cards with a heading."""

    title: str
    description: str
    cards: tuple[CaptionCard, ...]


def worst_and_best(
    scored: ScoredCaptions,
    by: str,
    load_image: Callable[[str], Image] | None = None,
    draw_grounding: Callable[[str], str] | None = None,
) -> list[CardGroup]:
    """The captions with the lowest and with the highest scores; of captions with equal scores, those with the first ids."""
    values = scored[by].scores.values
    order = np.lexsort([scored.corpus.ids, values])
    size = max(1, min(MAX_CARDS, len(order) // 2))  # no caption is in both groups
    lowest, highest = order[:size], np.lexsort([scored.corpus.ids, -values])[:size]
    groups = []
    for title, captions in ((f"Worst by {by}", lowest), (f"Best by {by}", highest)):
        last = values[captions[-1]]
        tied, tied_shown = int((values == last).sum()), int((values[captions] == last).sum())
        description = f"{size} of {len(order):,} captions, from {values[captions[0]]:.3f} to {last:.3f}"
        if tied > tied_shown:
            description += f"; {tied:,} captions have {last:.3f}"
        cards = tuple(
            _make_card(scored, n, load_image, draw_grounding if at < MAX_GROUNDED else None)
            for at, n in enumerate(captions.tolist())
        )
        groups.append(CardGroup(title, description + ".", cards))
    return groups


def largest_differences(
    first: ScoredCaptions, second: ScoredCaptions, by: str, load_image: Callable[[str], Image] | None = None
) -> CardGroup:
    """The images with the largest differences between two sets of candidates."""
    difference = second[by].scores.values - first[by].scores.values
    order = np.lexsort([first.corpus.ids, -np.abs(difference)])[:MAX_CARDS]
    cards = []
    for n in order[difference[order] != 0].tolist():
        first_score, second_score = (f"{captions[by].scores.values[n]:.3f}" for captions in (first, second))
        scores = ((f"{by}: {first.name}", first_score), (second.name, second_score))
        other_caption = f"{second.name}: {_candidate_text(second, n) or '(no words)'}"
        cards.append(replace(_make_card(first, n, load_image, None), scores=scores, other_caption=other_caption))
    description = f"{len(cards)} images; the caption of {first.name} in bold, that of {second.name} below it."
    return CardGroup(f"Largest differences between {first.name} and {second.name} by {by}", description, tuple(cards))


def _make_card(
    scored: ScoredCaptions, n: int, load_image: Callable[[str], Image] | None, draw_grounding: Callable[[str], str] | None
) -> CaptionCard:
    corpus = scored.corpus
    candidate, image = int(corpus.candidate_index[n]), str(corpus.ids[n])
    count = int(corpus.references_per_image[n])
    references = tuple(_caption_text(scored, candidate + 1 + k) for k in range(min(MAX_REFERENCES, count)))
    scores = tuple((name, f"{result.scores.values[n]:.3f}") for name, result in scored.results.items())
    return CaptionCard(
        image, _candidate_text(scored, n), references, count - len(references), scores,
        image_data_url(load_image(image), IMAGE_SIZE) if load_image else "", draw_grounding(image) if draw_grounding else "",
    )  # fmt: skip


def _candidate_text(scored: ScoredCaptions, n: int) -> str:
    return _caption_text(scored, int(scored.corpus.candidate_index[n]))


def _caption_text(scored: ScoredCaptions, n: int) -> str:
    """The original caption, or its tokens if the corpus was made from tokens."""
    corpus = scored.corpus
    if corpus.captions is not None:
        return corpus.captions[n]
    return " ".join(corpus.vocabulary[word] for word in corpus.words[corpus.offsets[n] : corpus.offsets[n + 1]])


def write_captions_page(
    path: Path, title: str, lead: str, tables: Sequence[Table], panels: Sequence[Panel], groups: Sequence[CardGroup] = (),
    signatures: Sequence[str] = (), figures_first: bool = False,
) -> Path:  # fmt: skip
    """Write a self-contained html page with tables, figures and groups of captions."""
    if path.suffix.lower() not in (".html", ".htm"):
        raise CrossmatchError(f"{path}: the name of a page must end in .html.")
    page = render_template(
        "captions.html", title=title, lead=lead, tables=tables, figures=render_panels(panels), groups=groups, signatures=signatures,
        figures_first=figures_first,
    )  # fmt: skip
    return write_output(path, page.encode("utf-8", "surrogatepass"))
