"""What people said about pairs, beside the links that the data came with.

`judgements.csv` is about an image and a caption, `judgements_t2t.csv` about two captions, `judgements_i2i.csv` about two images.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Container, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

import numpy as np

from crossmatch.benchmarks.formats.table import Row, read_table
from crossmatch.core.collection import Collection
from crossmatch.core.errors import CrossmatchError
from crossmatch.core.judgements import KINDS, Judgements

MAY = ("source", "direction")
SOURCE = re.compile(r"[\w.+ -]+")  # it becomes part of names such as i2t/SOURCE


@dataclass(frozen=True)
class Pairs:
    """What a file of judgements is about: the columns that name either side, by id or otherwise, and what it is called."""

    kind: str
    first: tuple[str, str]
    second: tuple[str, str]
    source: str


FILES = {
    "judgements": Pairs("image-caption", ("image_id", "image"), ("caption_id", "caption"), "judged"),
    "judgements_t2t": Pairs("caption-caption", ("caption_id", "caption"), ("other_caption_id", "other_caption"), "captions"),
    "judgements_i2i": Pairs("image-image", ("image_id", "image"), ("other_image_id", "other_image"), "images"),
}


def read_judgements(
    path: Path, collection: Collection, aliases: Mapping[str, str], positive: float, left_out: Container[str] = ()
) -> dict[str, Judgements]:
    """Graded pairs under the name that the column `source` gives them, or as `judged`; of two captions as `captions`, of two
    images as `images`, and either way round.

    An image goes by its id or its file's name, a caption by its id or by its text; a text means every caption that reads so.
    A grade is zero (judged irrelevant) or more; from `positive` on the pair is a positive. Pairs that are not listed are unjudged.
    Rows about captions with an id among `left_out` are passed over. A row with a `direction`, i2t or t2i, holds for that one
    alone, in a set of its own: `SOURCE-i2t`.
    """
    images = {str(name): [n] for n, name in enumerate(collection.image_ids)}
    images |= {name: images[image] for name, image in aliases.items() if name not in images}
    captions = {str(name): [n] for n, name in enumerate(collection.caption_ids)}
    reads: dict[str, list[int]] = defaultdict(list)
    for n, text in enumerate(collection.captions):
        reads[text].append(n)
    pairs = FILES[path.stem.lower()]
    known = {"image_id": images, "image": images, "caption_id": captions, "caption": reads}
    said: dict[str, dict[tuple[int, int], tuple[float, str]]] = defaultdict(dict)
    only: dict[str, str] = {}
    for row in read_table(path, (pairs.first, pairs.second, ("grade",)), MAY):
        if row.cells.get("caption_id") in left_out or row.cells.get("other_caption_id") in left_out:
            continue
        direction = _direction(row, pairs.kind)
        source, grade = _source(row, pairs.source) + (f"-{direction}" if direction else ""), _grade(row)
        if only.setdefault(source, direction) != direction:
            raise CrossmatchError(f"{row.where}: {source!r} is a source of its own already, for all directions. Rename one.")
        firsts, seconds = (_meant(row, {c: known[c.removeprefix("other_")] for c in side}) for side in (pairs.first, pairs.second))
        for pair in ((first, second) for first in firsts for second in seconds):
            for each in {pair, pair[::-1]} if pairs.kind != "image-caption" else {pair}:
                _put(said[source], each, grade, row, pairs.kind, collection)
    return {
        source: _judgements(path, source, pairs.kind, found, collection, positive, only[source]) for source, found in said.items()
    }


def _put(
    said: dict[tuple[int, int], tuple[float, str]], pair: tuple[int, int], grade: float, row: Row, kind: str, collection: Collection
) -> None:
    """Write down a grade; a pair has one, and nothing is paired with itself."""
    sides = KINDS[kind][0]
    names = [f"{side} {str(collection.ids(side)[at])!r}" for side, at in zip(sides, pair, strict=True)]
    if sides[0] == sides[1] and pair[0] == pair[1]:
        raise CrossmatchError(f"{row.where}: {names[0]} is compared with itself. Leave the row out.")
    if pair in said:
        raise CrossmatchError(
            f"{row.where}: the pair of {names[0]} and {names[1]} was already judged by {said[pair][1]}. Merge the two grades."
        )
    said[pair] = (grade, row.where)


def _meant(row: Row, known: Mapping[str, Mapping[str, list[int]]]) -> list[int]:
    """What the columns that are there name together."""
    meant: list[int] = []
    columns = [column for column in known if column in row.cells]
    for column in columns:
        name = row.cells[column]
        found = known[column].get(name, [])
        if not found:
            close = get_close_matches(name, known[column], n=1, cutoff=0.7)
            hint = f"Did you mean {close[0]!r}?" if close else f"Name one such as {next(iter(known[column]))!r}."
            raise CrossmatchError(f"{row.where}: there is no {column} {name!r:.60} in the collection. {hint}")
        meant = found if column == columns[0] else [n for n in meant if n in found]
    if not meant:
        raise CrossmatchError(
            f"{row.where}: {' and '.join(f'{c} {row.cells[c]!r:.60}' for c in columns)} are not the same. Keep one."
        )
    return meant


def _grade(row: Row) -> float:
    try:
        grade = float(row.cells["grade"])
    except ValueError:
        grade = math.nan
    if not 0 <= grade < math.inf:
        raise CrossmatchError(f"{row.where}: the grade is {row.cells['grade']!r}; a number from 0 (irrelevant) on was expected.")
    return grade


def _source(row: Row, usual: str) -> str:
    source = row.cells.get("source", usual)
    if not SOURCE.fullmatch(source) or source == "links":
        raise CrossmatchError(
            f"{row.where}: the source is {source!r:.40}; letters, digits and -_.+ were expected, and not 'links'. Rename it."
        )
    return source


def _direction(row: Row, kind: str) -> str:
    direction = row.cells.get("direction", "")
    if direction and direction not in KINDS[kind][1]:
        raise CrossmatchError(
            f"{row.where}: the direction is {direction!r:.40}; {' or '.join(KINDS[kind][1])} was expected, or nothing for all."
        )
    return direction


def _judgements(
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
            f"{path}: no grade of {source!r} reaches {positive:g}, the highest is {max(grades):g}, so there is no positive. "
            "Say from which grade on a pair is positive: +positive=GRADE behind the folder's name."
        )
    rows, columns = np.asarray(list(pairs), dtype=np.int64).T
    shape = len(collection.ids(KINDS[kind][0][0])), len(collection.ids(KINDS[kind][0][1]))
    return Judgements(source, rows, columns, np.asarray(grades), shape, positive, kind=kind, only=only)
