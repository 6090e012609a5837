"""Reads judgement files.

`judgements.csv` has pairs of image and caption, `judgements_t2t.csv` of two captions, `judgements_i2i.csv` of two images.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Container, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path

import numpy as np

from crossmatch.benchmarks.formats.csv_tables import TableRow, read_table
from crossmatch.data.collection import Collection
from crossmatch.data.errors import CrossmatchError
from crossmatch.data.judgements import ARTIFICIAL, KINDS, LINKS, Judgements, rehearsal_note

OPTIONAL_COLUMNS = ("source", "direction")
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


def read_judgements(
    path: Path, collection: Collection, aliases: Mapping[str, str], positive: float, skipped_captions: Container[str] = ()
) -> dict[str, Judgements]:
    """Read graded pairs, grouped by the column `source` (default: `judged`, `captions` or `images`, by the kind of pairs).

    A grade of zero means judged irrelevant. Pairs without a row are unjudged. Pairs of two captions or two images count in both
    orders. A row with a `direction` (i2t or t2i) counts in that direction only, in a separate set `SOURCE-i2t`.

    Images are named by id, file name or alias, captions by id or text; a text refers to all captions with that text. `positive` is the
    lowest grade of a positive. Rows about skipped captions are ignored. Sets with grades of artificial annotators (column `by`) have
    a note.
    """
    images = {str(name): [n] for n, name in enumerate(collection.image_ids)}
    images |= {name: images[image] for name, image in aliases.items() if name not in images}
    captions = {str(name): [n] for n, name in enumerate(collection.caption_ids)}
    captions_by_text: dict[str, list[int]] = defaultdict(list)
    for n, text in enumerate(collection.captions):
        captions_by_text[text].append(n)
    file_format = JUDGEMENT_FILES[path.stem.lower()]
    positions = {"image_id": images, "image": images, "caption_id": captions, "caption": captions_by_text}
    grades: dict[str, dict[tuple[int, int], tuple[float, str]]] = defaultdict(dict)
    only: dict[str, str] = {}
    is_artificial: dict[str, set[bool]] = defaultdict(set)  # by source, over the grades that are not links
    required = (file_format.first, file_format.second, ("grade",))
    for row in read_table(path, required, OPTIONAL_COLUMNS, has_escaped_formulas=True):
        if row.cells.get("caption_id") in skipped_captions or row.cells.get("other_caption_id") in skipped_captions:
            continue
        direction = _parse_direction(row, file_format.kind)
        source, grade = _parse_source(row, file_format.source) + (f"-{direction}" if direction else ""), _parse_grade(row)
        if only.setdefault(source, direction) != direction:
            raise CrossmatchError(f"{row.where}: the source {source!r} is already used for all directions. Rename one.")
        if row.cells.get("by") != LINKS:
            is_artificial[source].add(row.cells.get("by") == ARTIFICIAL)
        firsts, seconds = (
            _find_positions(row, {c: positions[c.removeprefix("other_")] for c in side})
            for side in (file_format.first, file_format.second)
        )
        for pair in ((first, second) for first in firsts for second in seconds):
            for ordered_pair in {pair, pair[::-1]} if file_format.kind != "image-caption" else {pair}:
                _add_grade(grades[source], ordered_pair, grade, row, file_format.kind, collection)
    return {
        source: replace(
            _build_judgements(path, source, file_format.kind, graded, collection, positive, only[source]),
            note=_note_about(source, is_artificial[source]),
        )
        for source, graded in grades.items()
    }


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


def _build_judgements(
    path: Path,
    source: str,
    kind: str,
    pairs: Mapping[tuple[int, int], tuple[float, str]],
    collection: Collection,
    positive: float,
    only: str,
) -> Judgements:
    grades = [grade for grade, _ in pairs.values()]
    if max(grades) < positive:
        raise CrossmatchError(
            f"{path}: {source!r} has no positive: its highest grade is {max(grades):g}, and positives have {positive:g} or more. "
            "Set the lowest grade of a positive: +positive=GRADE after the folder's name."
        )
    rows, columns = np.asarray(list(pairs), dtype=np.int64).T
    shape = len(collection.ids(KINDS[kind][0][0])), len(collection.ids(KINDS[kind][0][1]))
    return Judgements(source, rows, columns, np.asarray(grades), shape, positive, kind=kind, only_direction=only)
