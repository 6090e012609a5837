"""Reads judgement files, as judgements for retrieval or as ratings for similarity.

`judgements.csv` has pairs of image and caption, `judgements_t2t.csv` of two captions, `judgements_i2i.csv` of two images.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path

import numpy as np

from crossmatch.benchmarks.formats.csv_tables import TableRow, read_table
from crossmatch.data.collection import Collection
from crossmatch.data.errors import CrossmatchError
from crossmatch.data.judgements import ARTIFICIAL, KINDS, LINKS, Judgements, rehearsal_note
from crossmatch.data.rated_pairs import PairRatings

OPTIONAL_COLUMNS = ("source", "direction", "positive_from", "by", "deviation", "sampling_method")
DEFAULT_POSITIVE = 1.0  # lowest grade of a positive
SOURCE_NAME = re.compile(r"[\w.+ -]+")  # becomes part of names such as i2t/SOURCE


@dataclass(frozen=True)
class JudgementFileFormat:
    """The kind of pairs in a judgement file, the columns that identify each side, and the default source."""

    kind: str
    first: tuple[str, str]
    second: tuple[str, str]
    source: str


JUDGEMENT_FILES = {
    "judgements": JudgementFileFormat("image-caption", ("image_id", "image"), ("caption_id", "caption"), "judged"),
    "judgements_t2t": JudgementFileFormat(
        "caption-caption", ("caption_id", "caption"), ("other_caption_id", "other_caption"), "captions"
    ),
    "judgements_i2i": JudgementFileFormat("image-image", ("image_id", "image"), ("other_image_id", "other_image"), "images"),
}


@dataclass(frozen=True)
class JudgementFile:
    """A judgement file and the names that it may use.

    Attributes:
        path: The file; its name says which kind of pairs it has.
        collection: The images and captions.
        aliases: Other names of images, with their ids.
        skipped_captions: Captions that were left out; rows about them are ignored.
    """

    path: Path
    collection: Collection
    aliases: Mapping[str, str]
    skipped_captions: Container[str] = ()

    @property
    def format(self) -> JudgementFileFormat:
        return JUDGEMENT_FILES[self.path.stem.lower()]

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of items on the first and on the second side."""
        first, second = KINDS[self.format.kind][0]
        return len(self.collection.ids(first)), len(self.collection.ids(second))


@dataclass(frozen=True)
class GradedRow:
    """A row of a judgement file: the positions of its pairs (several if a text is that of several captions), and its grade."""

    row: TableRow
    source: str
    direction: str
    pairs: tuple[tuple[int, int], ...]
    grade: float

    @property
    def is_from_link(self) -> bool:
        return self.row.cells.get("by") == LINKS

    @property
    def is_artificial(self) -> bool:
        return self.row.cells.get("by") == ARTIFICIAL


@dataclass(frozen=True)
class FileJudgements:
    """The judgements of a file by source, and notes about sources that have no positive."""

    by_source: Mapping[str, Judgements]
    notes: tuple[str, ...] = ()


def read_judgements(file: JudgementFile, positive: float | None) -> FileJudgements:
    """Read graded pairs, grouped by the column `source` (default: `judged`, `captions` or `images`, by the kind of pairs).

    A grade of zero means judged irrelevant. Pairs without a row are unjudged. Pairs of two captions or two images count in both
    orders. A row with a `direction` (i2t or t2i) counts in that direction only, in a separate set `SOURCE-i2t`.

    Images are named by id, file name or alias, captions by id or text; a text refers to all captions with that text. `positive` is the
    lowest grade of a positive; None: the value of the column `positive_from`, or else 1. A source that declares this column and has
    no positive is left out with a note, because its ratings can still be correlated with scores. Rows about skipped captions are
    ignored. Sets with grades of artificial annotators (column `by`) have a note.
    """
    grades: dict[str, dict[tuple[int, int], tuple[float, str]]] = defaultdict(dict)
    only: dict[str, str] = {}
    declared: dict[str, float] = {}
    is_artificial: dict[str, set[bool]] = defaultdict(set)  # by source, over the grades that are not links
    for graded in _graded_rows(file):
        source = graded.source
        if not graded.is_from_link:
            is_artificial[source].add(graded.is_artificial)
        if only.setdefault(source, graded.direction) != graded.direction:
            raise CrossmatchError(f"{graded.row.where}: the source {source!r} is already used for all directions. Rename one.")
        note_declared_threshold(graded.row, graded.source, declared)
        for pair in graded.pairs:
            for ordered_pair in {pair, pair[::-1]} if file.format.kind != "image-caption" else {pair}:
                _add_grade(grades[source], ordered_pair, graded.grade, graded.row, file.format.kind, file.collection)
    judgements: dict[str, Judgements] = {}
    notes = []
    for source, pairs in grades.items():
        threshold = positive if positive is not None else declared.get(source, DEFAULT_POSITIVE)
        highest = max(grade for grade, _ in pairs.values())
        if highest >= threshold:
            built = _build_judgements(file, source, pairs, threshold, only[source])
            judgements[source] = replace(built, note=_note_about(source, is_artificial[source]))
        elif positive is None and source in declared:
            directions = " and ".join(KINDS[file.format.kind][1])
            notes.append(
                f"{source}: no retrieval in {directions}, because no pair has a grade of {threshold:g} or more (highest: {highest:g})"
            )
        else:
            raise CrossmatchError(
                f"{file.path}: {source!r} has no positive: its highest grade is {highest:g}, and positives have {threshold:g} or "
                "more. Set the lowest grade of a positive: +positive=GRADE after the folder's name."
            )
    return FileJudgements(judgements, tuple(notes))


def read_ratings_of_pairs(file: JudgementFile) -> dict[str, PairRatings]:
    """Read the pairs that people rated, grouped by source, in the order and orientation of the rows.

    Unrated links (`by` is `links`) are left out. `positive_from`, `deviation` and `sampling_method` are kept.
    """
    by_source: dict[str, list[tuple[int, int, float, float, str]]] = defaultdict(list)
    declared: dict[str, float] = {}
    is_artificial: dict[str, set[bool]] = defaultdict(set)  # by source
    places: dict[tuple[str, tuple[int, int]], str] = {}
    for graded in _graded_rows(file):
        if graded.is_from_link:
            continue
        note_declared_threshold(graded.row, graded.source, declared)
        is_artificial[graded.source].add(graded.is_artificial)
        deviation, method = _parse_deviation(graded.row), graded.row.cells.get("sampling_method", "")
        for first, second in graded.pairs:
            earlier = places.setdefault((graded.source, (first, second)), graded.row.where)
            if earlier != graded.row.where:
                raise CrossmatchError(f"{graded.row.where}: this pair has a grade in {earlier} already. Merge the two grades.")
            by_source[graded.source].append((first, second, graded.grade, deviation, method))
    ratings = {}
    for source, rows in by_source.items():
        firsts, seconds, grades, deviations, methods = (np.asarray(column) for column in zip(*rows, strict=True))
        ratings[source] = PairRatings(
            source, file.format.kind, firsts, seconds, grades, deviations, methods, file.shape,
            declared.get(source, DEFAULT_POSITIVE), _note_about(source, is_artificial[source]),
        )  # fmt: skip
    return ratings


def _graded_rows(file: JudgementFile) -> Iterator[GradedRow]:
    """The rows of a file, without those about skipped captions."""
    collection, file_format = file.collection, file.format
    images = {str(name): [n] for n, name in enumerate(collection.image_ids)}
    images |= {name: images[image] for name, image in file.aliases.items() if name not in images}
    captions = {str(name): [n] for n, name in enumerate(collection.caption_ids)}
    captions_by_text: dict[str, list[int]] = defaultdict(list)
    for n, text in enumerate(collection.captions):
        captions_by_text[text].append(n)
    positions = {"image_id": images, "image": images, "caption_id": captions, "caption": captions_by_text}
    for row in read_table(
        file.path, (file_format.first, file_format.second, ("grade",)), OPTIONAL_COLUMNS, has_escaped_formulas=True
    ):
        if row.cells.get("caption_id") in file.skipped_captions or row.cells.get("other_caption_id") in file.skipped_captions:
            continue
        direction = _parse_direction(row, file_format.kind)
        source = _parse_source(row, file_format.source) + (f"-{direction}" if direction else "")
        firsts, seconds = (
            _find_positions(row, {c: positions[c.removeprefix("other_")] for c in side})
            for side in (file_format.first, file_format.second)
        )
        pairs = tuple((first, second) for first in firsts for second in seconds)
        yield GradedRow(row, source, direction, pairs, _parse_grade(row))


def has_artificial_answers(path: Path) -> bool:
    """Whether a table names artificial annotators in the column `by`."""
    return any(row.cells.get("by") == ARTIFICIAL for row in read_table(path, ()))


def _note_about(source: str, is_artificial: Container[bool]) -> str:
    if True not in is_artificial:
        return ""
    return rehearsal_note(f"{'some ' if False in is_artificial else ''}grades of {source}")


def _add_grade(
    grades: dict[tuple[int, int], tuple[float, str]],
    pair: tuple[int, int],
    grade: float,
    row: TableRow,
    kind: str,
    collection: Collection,
) -> None:
    """Add the grade of a pair. A second grade of a pair, and a pair of an item with itself, are errors."""
    sides = KINDS[kind][0]
    names = [f"{side} {str(collection.ids(side)[at])!r}" for side, at in zip(sides, pair, strict=True)]
    if sides[0] == sides[1] and pair[0] == pair[1]:
        raise CrossmatchError(f"{row.where}: {names[0]} is paired with itself. Remove the row.")
    if pair in grades:
        raise CrossmatchError(
            f"{row.where}: the pair of {names[0]} and {names[1]} has a grade in {grades[pair][1]} already. Merge the two grades."
        )
    grades[pair] = (grade, row.where)


def _find_positions(row: TableRow, positions_by_column: Mapping[str, Mapping[str, list[int]]]) -> list[int]:
    """Return the positions of the items that all columns of a side refer to."""
    positions: list[int] = []
    columns = [column for column in positions_by_column if column in row.cells]
    for column in columns:
        name = row.cells[column]
        candidates = positions_by_column[column].get(name, [])
        if not candidates:
            close = get_close_matches(name, positions_by_column[column], n=1, cutoff=0.7)
            hint = f"Did you mean {close[0]!r}?" if close else f"Name one such as {next(iter(positions_by_column[column]))!r}."
            raise CrossmatchError(f"{row.where}: the collection has no {column} {name!r:.60}. {hint}")
        positions = candidates if column == columns[0] else [n for n in positions if n in candidates]
    if not positions:
        raise CrossmatchError(
            f"{row.where}: {' and '.join(f'{c} {row.cells[c]!r:.60}' for c in columns)} refer to different items. Keep one."
        )
    return positions


def _parse_grade(row: TableRow) -> float:
    try:
        grade = float(row.cells["grade"])
    except ValueError:
        grade = math.nan
    if not 0 <= grade < math.inf:
        raise CrossmatchError(f"{row.where}: the grade must be a number, 0 (irrelevant) or more (got {row.cells['grade']!r}).")
    return grade


def _parse_source(row: TableRow, default: str) -> str:
    source = row.cells.get("source", default)
    if not SOURCE_NAME.fullmatch(source) or source == LINKS:
        raise CrossmatchError(
            f"{row.where}: the source must consist of letters, digits and -_.+, and not be 'links' (got {source!r:.40}). Rename it."
        )
    return source


def _parse_direction(row: TableRow, kind: str) -> str:
    direction = row.cells.get("direction", "")
    if direction and direction not in KINDS[kind][1]:
        raise CrossmatchError(
            f"{row.where}: the direction must be {' or '.join(KINDS[kind][1])}, or empty for both (got {direction!r:.40})."
        )
    return direction


def note_declared_threshold(row: TableRow, source: str, declared: dict[str, float]) -> None:
    """Add the threshold that a row declares for its source. All rows of a source must declare the same."""
    text = row.cells.get("positive_from", "")
    if not text:
        return
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise CrossmatchError(f"{row.where}: positive_from must be a grade above zero (got {text!r:.40}).")
    if declared.setdefault(source, value) != value:
        raise CrossmatchError(
            f"{row.where}: positive_from is {text}, but {declared[source]:g} in an earlier row of the source "
            f"{source!r}. Use one value per source."
        )


def _parse_deviation(row: TableRow) -> float:
    """The standard deviation of the answers; NaN if the cell is absent or empty."""
    text = row.cells.get("deviation", "")
    try:
        value = float(text) if text else math.nan
    except ValueError:
        value = -1.0
    if value < 0 or math.isinf(value):
        raise CrossmatchError(f"{row.where}: the deviation must be a number, 0 or more (got {text!r:.40}).")
    return value


def _build_judgements(
    file: JudgementFile, source: str, pairs: Mapping[tuple[int, int], tuple[float, str]], positive: float, only: str
) -> Judgements:
    rows, columns = np.asarray(list(pairs), dtype=np.int64).T
    grades = np.asarray([grade for grade, _ in pairs.values()])
    return Judgements(source, rows, columns, grades, file.shape, positive, kind=file.format.kind, only_direction=only)
