"""Readers for tables of grades and ratings: exports of studies, merged judgements, and the files of Crisscrossed Captions."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Sequence
from pathlib import Path

from crossmatch.benchmarks.coco import parse_caption_id, parse_image_id
from crossmatch.benchmarks.formats.csv_tables import DELIMITERS, TableRow, read_table
from crossmatch.data.collection import Collection
from crossmatch.data.errors import CrossmatchError, UsageError

JUDGEMENTS = "judgements.csv"
GRADE_COLUMNS = ("grade", "agg_score")
PairRating = tuple[str, str, float]  # two ids and their rating
# For each rated side: the columns of the two ids (ours, then CxC's), and the function that turns official names into ids.
COLUMNS = {
    "caption": (("caption_id", "caption1"), ("other_caption_id", "caption2"), parse_caption_id),
    "image": (("image_id", "image1"), ("other_image_id", "image2"), parse_image_id),
}


def parse_grade(row: TableRow) -> float:
    """The grade in a row of a table, as a finite number."""
    cell = row.cells[next(column for column in GRADE_COLUMNS if column in row.cells)]
    try:
        grade = float(cell)
    except ValueError:
        grade = math.nan
    if not math.isfinite(grade):
        raise CrossmatchError(f"{row.where}: expected a number as the rating, got {cell!r:.40}.")
    return grade


def find_item_id(row: TableRow, columns: Sequence[str], ids: Container[str], official_id: Callable[[str], str]) -> str:
    """The id in the first of these columns that the row has; official names of CxC are translated into ids."""
    column = next(column for column in columns if column in row.cells)
    name = row.cells[column]
    item_id = name if name in ids else official_id(name)
    if item_id not in ids:
        raise CrossmatchError(f"{row.where}: {column} {name!r:.60} is not in the collection. Check --data.")
    return item_id


def require_table(path: Path, content: str) -> None:
    """Raise unless the path is a csv or tsv file."""
    if not path.is_file():
        raise UsageError(f"{path} does not exist; expected a table of {content}. Check the path.")
    if path.suffix.lower() not in DELIMITERS:
        raise UsageError(f"{path}: expected a .csv or .tsv file with {content}, got {path.suffix or 'no suffix'!r}.")


def judgements_file(path: Path) -> Path:
    """The table at a path: a file itself, or the judgements of a folder."""
    return path / JUDGEMENTS if path.is_dir() else path


def read_relevance(path: Path) -> dict[tuple[str, str], float]:
    """Read the relevance, 0 to 1, of image-caption pairs from an export, a merged folder, or a table."""
    file = judgements_file(path)
    require_table(file, "answers (image_id, caption_id, grade)")
    relevance: dict[tuple[str, str], float] = {}
    for row in read_table(file, (("image_id",), ("caption_id",), GRADE_COLUMNS), has_escaped_formulas=True):
        pair, grade = (row.cells["image_id"], row.cells["caption_id"]), parse_grade(row)
        if not 0 <= grade <= 1:
            raise CrossmatchError(f"{row.where}: expected a grade from 0 to 1, got {grade:g}. Merge ratings first.")
        if relevance.setdefault(pair, grade) != grade:
            raise CrossmatchError(f"{row.where}: image {pair[0]!r} and caption {pair[1]!r} have two grades. Merge them first.")
    return relevance


def read_pair_ratings(path: Path, collection: Collection, side: str) -> list[PairRating]:
    """Read rated pairs of captions (`side="caption"`) or of images from a csv or tsv.

    The columns are those of a study's export (`judgements_t2t.csv`: caption_id, other_caption_id, grade) or of the official CxC
    files (caption1, caption2, agg_score).
    """
    require_table(path, "ratings")
    first, second, official_id = COLUMNS[side]
    ids = set(collection.ids(side).tolist())
    ratings = []
    for row in read_table(path, (first, second, GRADE_COLUMNS), has_escaped_formulas=True):
        first_id, second_id = (find_item_id(row, columns, ids, official_id) for columns in (first, second))
        ratings.append((first_id, second_id, parse_grade(row)))
    return ratings


def mean_ratings(ratings: Iterable[PairRating], collection: Collection, side: str) -> dict[tuple[int, int], float]:
    """Mean rating of each pair, keyed by its two positions in the order of the file.

    A pair may be rated several times. Ratings in both orders are two pairs.

    >>> pets = Collection.from_captions({"cat": ["A cat."], "dog": ["A dog."]})
    >>> mean_ratings([("dog", "cat", 2.0), ("dog", "cat", 3.0), ("cat", "dog", 4.0)], pets, "image")
    {(0, 1): 4.0, (1, 0): 2.5}
    """
    position = {str(name): n for n, name in enumerate(collection.ids(side).tolist())}
    values: dict[tuple[int, int], list[float]] = defaultdict(list)
    for first, second, rating in ratings:
        unknown = next((name for name in (first, second) if name not in position), None)
        if unknown is not None:
            raise CrossmatchError(f"Rated {side} {unknown!r:.60} is not in the collection. Check --data.")
        if first == second:
            raise CrossmatchError(f"{side} {first!r:.60} is rated against itself. Remove that pair.")
        if not math.isfinite(rating):
            raise CrossmatchError(f"{side}s {first!r:.60} and {second!r:.60}: expected a number as the rating, got {rating}.")
        values[position[first], position[second]].append(float(rating))
    return {pair: math.fsum(ratings) / len(ratings) for pair, ratings in sorted(values.items())}
