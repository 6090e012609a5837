"""`judgements.csv`: what people said about pairs of an image and a caption, beside the links that the data came with."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Container, Mapping
from difflib import get_close_matches
from pathlib import Path

from crossmatch.benchmarks.formats.table import Row, read_table
from crossmatch.core.collection import Collection
from crossmatch.core.errors import CrossmatchError
from crossmatch.core.judgements import Judgements

NEEDS = (("image", "image_id"), ("caption_id", "caption"), ("grade",))
MAY = ("source",)
SOURCE = re.compile(r"[\w.+ -]+")  # it becomes part of names such as i2t/SOURCE


def read_judgements(
    path: Path, collection: Collection, aliases: Mapping[str, str], positive: float, left_out: Container[str] = ()
) -> dict[str, Judgements]:
    """Graded pairs under the name that the column `source` gives them, or as `judged`.

    An image goes by its id or its file's name, a caption by its id or by its text; a text means every caption that reads so.
    A grade is zero (judged irrelevant) or more; from `positive` on the pair is a positive. Pairs that are not listed are unjudged.
    Rows about captions with an id among `left_out` are passed over.
    """
    images = {str(name): [n] for n, name in enumerate(collection.image_ids)}
    images |= {name: images[image] for name, image in aliases.items() if name not in images}
    captions = {str(name): [n] for n, name in enumerate(collection.caption_ids)}
    reads: dict[str, list[int]] = defaultdict(list)
    for n, text in enumerate(collection.captions):
        reads[text].append(n)
    said: dict[str, dict[tuple[int, int], tuple[float, str]]] = defaultdict(dict)
    for row in read_table(path, NEEDS, MAY):
        if row.cells.get("caption_id") in left_out:
            continue
        source, grade = _source(row), _grade(row)
        (image,) = _meant(row, {"image_id": images, "image": images})
        for caption in _meant(row, {"caption_id": captions, "caption": reads}):
            before = said[source].get((image, caption))
            if before is not None:
                raise CrossmatchError(
                    f"{row.where}: the pair of image {str(collection.image_ids[image])!r} and caption "
                    f"{str(collection.caption_ids[caption])!r} was already judged by {before[1]}. Merge the two grades."
                )
            said[source][image, caption] = (grade, row.where)
    return {source: _judgements(path, source, pairs, collection, positive) for source, pairs in said.items()}


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


def _source(row: Row) -> str:
    source = row.cells.get("source", "judged")
    if not SOURCE.fullmatch(source) or source == "links":
        raise CrossmatchError(
            f"{row.where}: the source is {source!r:.40}; letters, digits and -_.+ were expected, and not 'links'. Rename it."
        )
    return source


def _judgements(
    path: Path, source: str, pairs: Mapping[tuple[int, int], tuple[float, str]], collection: Collection, positive: float
) -> Judgements:
    grades = [grade for grade, _ in pairs.values()]
    if max(grades) < positive:
        raise CrossmatchError(
            f"{path}: no grade of {source!r} reaches {positive:g}, the highest is {max(grades):g}, so there is no positive. "
            "Say from which grade on a pair is positive: +positive=GRADE behind the folder's name."
        )
    return Judgements(source, [i for i, _ in pairs], [c for _, c in pairs], grades, collection.shape, positive)  # type: ignore[arg-type]
