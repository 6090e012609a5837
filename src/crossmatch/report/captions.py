"""Scored captions as a table, as a csv, and as a page with the worst and the best of them."""

from __future__ import annotations

import base64
import csv
import io
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from crossmatch import __version__
from crossmatch.captions.judge import Judged, compare
from crossmatch.captions.table import CAPTION_METRICS, told
from crossmatch.core.errors import CrossmatchError, MissingDependency, WrongWords
from crossmatch.core.whole import whole_file
from crossmatch.report.analysis_page import Panel, as_svg
from crossmatch.report.tables import NONE, Table

if TYPE_CHECKING:
    from PIL.Image import Image

SHOWN = 12  # captions on either end
REFERENCES = 5  # of each
GROUNDED = 3  # cards of a group with their regions drawn, which makes a page large
WIDE = 320  # pixels of a picture on the page
BY = ("cider-d", "tiger", "spice", "meteor", "ref-clip-score")  # what captions are sorted by unless it is said: the first there is


def scores_table(judged: Sequence[Judged]) -> Table:
    """A row for each metric, and for each set of candidates its value with both ends of the interval; the better one is tested."""
    first = judged[0]
    beyond = {(one.metric, one.second): one for one in compare(judged)} if len(judged) > 1 else {}
    head = ["", *(text for n, one in enumerate(judged) for text in (one.name, "95 %", *(("p",) if n else ())))]
    rows = []
    for name in first.results:
        cells = [name]
        for n, one in enumerate(judged):
            low, high = one.interval(name)
            cells += [f"{one.results[name].scores.value:.4f}", NONE if math.isnan(low) else f"{low:.4f} – {high:.4f}"]
            if n:
                cells.append(p_value(beyond[name, one.name].p, beyond[name, one.name].floor))
        rows.append(tuple(cells))
    notes = ["95 % intervals: bootstrap over images. --json and -o tell the signature of every number."]
    weighed = [result.signature for name, result in first.results.items() if name.startswith("cider")]
    if any(f"|df:references/{len(first.corpus)}|" in signature for signature in weighed):
        notes.append(
            f"CIDEr: document frequencies of the references of these {len(first.corpus):,} images; --frequencies takes others."
        )
    if beyond:
        notes.append(
            f"p: of the difference to {first.name}, by the paired bootstrap over images, or Student's t where no replicate lies on "
            f"the other side; Holm's correction over {len(beyond)} test{'s' if len(beyond) > 1 else ''}."
        )
    lengths = first.corpus.references_each
    each = str(lengths.min()) if lengths.min() == lengths.max() else f"{lengths.min()} to {lengths.max()}"
    title = f"{len(first.corpus):,} captions, {each} reference{'' if each == '1' else 's'} each"
    return Table(title, (tuple(head),), tuple(rows), 1, tuple(notes))


def p_value(p: float, floor: float = 0.0) -> str:
    """A p that so many replicates cannot undercut is an upper bound.

    >>> p_value(0.0004), p_value(0.042, 0.042), p_value(0.25, 0.042)
    ('< 0.001', '≤ 0.042', '0.250')
    """
    return "< 0.001" if p < 0.001 else f"≤ {p:.3f}" if p <= floor * 1.0001 else f"{p:.3f}"


def metrics_table() -> Table:
    """What there is: name, best value, what it needs beyond references, options, meaning and source."""
    rows = [
        (
            ", ".join(one.names) if len(one.names) < 4 else f"{one.names[0]} … {one.names[-1]}",
            f"{one.best:g}",
            ", ".join(need for need in one.needs if need != "frequencies"),
            ", ".join(f"{key}={told(value)}" for key, value in one.options),
            one.about,
            one.source,
        )
        for one in CAPTION_METRICS
    ]
    return Table("Caption metrics", (("name", "best", "needs", "options", "about", "source"),), tuple(rows), 6)


def sorted_by(names: Sequence[str], by: str | None) -> str:
    """The metric that captions are sorted by: the one that was asked for, or the one that tells most of a single caption.

    >>> sorted_by(["bleu-4", "cider-d", "rouge-l"], None)
    'cider-d'
    """
    if by is None:
        return next((name for name in BY if name in names), names[-1])
    if by not in names:
        raise WrongWords(f"captions cannot be sorted by {by!r}, which was not computed; there are {', '.join(names)}.")
    return by


def write_values(judged: Sequence[Judged], path: Path) -> Path:
    """A csv with every caption and its value by each metric, in full precision."""
    out = io.StringIO(newline="")
    table = csv.writer(out, lineterminator="\n")
    several = len(judged) > 1
    table.writerow([*(("candidates",) if several else ()), "image_id", "caption", *judged[0].results])
    for one in judged:
        values = [result.scores.values.tolist() for result in one.results.values()]
        for n, image in enumerate(one.corpus.ids.tolist()):
            named = (one.name,) if several else ()
            table.writerow([*named, image, _caption(one, n), *(repr(column[n]) for column in values)])
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path) as file:
        file.write(out.getvalue().encode())
    return path


@dataclass(frozen=True)
class Card:
    """One caption on the page."""

    image: str
    caption: str
    references: tuple[str, ...]
    more: int  # references that are not shown
    marks: tuple[tuple[str, str], ...]
    picture: str = ""  # as a data address
    grounding: str = ""  # as svg
    other: str = ""  # another candidate of the same image, with its name


@dataclass(frozen=True)
class Group:
    """Cards under a heading."""

    title: str
    about: str
    cards: tuple[Card, ...]


def extremes(
    judged: Judged,
    by: str,
    pictures: Callable[[str], Image] | None = None,
    grounding: Callable[[str], str] | None = None,
    shown: int = SHOWN,
) -> list[Group]:
    """The captions with the lowest and with the highest values; where many are level, those whose ids come first."""
    values = judged.results[by].scores.values
    order = np.lexsort([judged.corpus.ids, values])
    shown = max(1, min(shown, len(order) // 2))  # no caption is among the worst and the best
    lowest, highest = order[:shown], np.lexsort([judged.corpus.ids, -values])[:shown]
    groups = []
    for title, which in ((f"Worst by {by}", lowest), (f"Best by {by}", highest)):
        level = int((values == values[which[-1]]).sum())
        inside = int((values[which] == values[which[-1]]).sum())
        told = f"{shown} of {len(order):,} captions, from {values[which[0]]:.3f} to {values[which[-1]]:.3f}"
        if level > inside:
            told += f"; {level:,} in all have {values[which[-1]]:.3f}"
        draw = [grounding if place < GROUNDED else None for place in range(shown)]
        cards = tuple(_card(judged, n, pictures, ground) for n, ground in zip(which.tolist(), draw, strict=True))
        groups.append(Group(title, told + ".", cards))
    return groups


def apart(first: Judged, other: Judged, by: str, pictures: Callable[[str], Image] | None = None, shown: int = SHOWN) -> Group:
    """The images on which two sets of candidates differ most, either way, in turn."""
    gap = other.results[by].scores.values - first.results[by].scores.values
    order = np.lexsort([first.corpus.ids, -np.abs(gap)])[: min(shown, len(gap))]
    cards = []
    for n in order[gap[order] != 0].tolist():
        one, two = (f"{judged.results[by].scores.values[n]:.3f}" for judged in (first, other))
        own = _card(first, n, pictures, None)
        marks = ((f"{by}: {first.name}", one), (other.name, two))
        cards.append(replace(own, marks=marks, other=f"{other.name}: {_caption(other, n) or '(no words)'}"))
    told = f"{len(cards)} images; in bold what {first.name} says, below it {other.name}."
    return Group(f"Where {first.name} and {other.name} differ most by {by}", told, tuple(cards))


def _card(judged: Judged, n: int, pictures: Callable[[str], Image] | None, grounding: Callable[[str], str] | None) -> Card:
    corpus = judged.corpus
    first, image = int(corpus.candidate[n]), str(corpus.ids[n])
    each = int(corpus.references_each[n])
    references = tuple(_text(judged, first + 1 + k) for k in range(min(REFERENCES, each)))
    marks = tuple((name, f"{result.scores.values[n]:.3f}") for name, result in judged.results.items())
    return Card(
        image, _caption(judged, n), references, each - len(references), marks,
        _address(pictures(image)) if pictures else "", grounding(image) if grounding else "",
    )  # fmt: skip


def _caption(judged: Judged, n: int) -> str:
    return _text(judged, int(judged.corpus.candidate[n]))


def _text(judged: Judged, at: int) -> str:
    """As it was written; else its tokens."""
    corpus = judged.corpus
    if corpus.captions is not None:
        return corpus.captions[at]
    return " ".join(corpus.vocabulary[word] for word in corpus.words[corpus.begin[at] : corpus.begin[at + 1]])


def _address(picture: Image) -> str:
    small = picture.copy()
    small.thumbnail((WIDE, WIDE))
    out = io.BytesIO()
    small.convert("RGB").save(out, "JPEG", quality=85)
    return "data:image/jpeg;base64," + base64.b64encode(out.getvalue()).decode()


def write_captions_page(
    path: Path, title: str, lead: str, tables: Sequence[Table], panels: Sequence[Panel], groups: Sequence[Group] = (),
    signatures: Sequence[str] = (), pictures_first: bool = False,
) -> Path:  # fmt: skip
    """One self-contained page; nothing in it points outside of it."""
    try:
        from jinja2 import Environment
    except ImportError:
        raise MissingDependency("Jinja2", "report") from None
    if path.suffix.lower() not in (".html", ".htm"):
        raise CrossmatchError(f"{path} should end in .html. Name the page so.")
    here = Path(__file__)
    style = re.search(r"<style>(.*?)</style>", here.with_name("page.html").read_text(encoding="utf-8"), re.DOTALL)
    page = Environment(autoescape=True).from_string(here.with_name("captions.page.html").read_text(encoding="utf-8"))
    facts: dict[str, Any] = {"title": title, "lead": lead, "tables": tables, "groups": groups, "signatures": signatures}
    told = page.render(
        first=pictures_first,
        figures=[(panel.title, panel.about, as_svg(panel)) for panel in panels],
        style=style[1] if style else "",
        version=__version__,
        **facts,
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path) as file:
        file.write(told.encode("utf-8", "surrogatepass"))
    return path
