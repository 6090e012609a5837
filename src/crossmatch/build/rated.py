"""Ratings of pairs of one kind, as a study exports them or as Crisscrossed Captions releases them, for the next sampling."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from crossmatch.benchmarks.coco import caption_id, image_id
from crossmatch.benchmarks.formats.table import DELIMITERS, Row, read_table
from crossmatch.core.collection import Collection
from crossmatch.core.errors import CrossmatchError, WrongWords

Rated = tuple[str, str, float]  # two ids, and what people said of them
# By the side that is rated: the columns that name either of the pair, ours first, and how official names become ids.
COLUMNS = {
    "caption": (("caption_id", "caption1"), ("other_caption_id", "caption2"), caption_id),
    "image": (("image_id", "image1"), ("other_image_id", "image2"), image_id),
}
GRADES = ("grade", "agg_score")


def read_rated(path: Path, collection: Collection, side: str) -> list[Rated]:
    """The rated pairs of a csv or tsv, those of captions (`side="caption"`) or of images.

    Columns are those of a study's export (`judgements_t2t.csv`: caption_id, other_caption_id, grade) or of the official files of
    CxC (caption1, caption2, agg_score).
    """
    if not path.is_file():
        raise WrongWords(f"{path} is not there. Check the path.")
    if path.suffix.lower() not in DELIMITERS:
        raise WrongWords(f"{path} ends in {path.suffix or 'nothing'!r}; ratings are read from .csv and .tsv. Save it as one.")
    first, second, official = COLUMNS[side]
    known = set(collection.ids(side).tolist())

    def named(row: Row, columns: tuple[str, str]) -> str:
        name = row.cells[next(column for column in columns if column in row.cells)]
        found = name if name in known else official(name)
        if found not in known:
            raise CrossmatchError(f"{row.where}: there is no {side} {name!r:.60} in the collection. Name the one that was rated.")
        return found

    return [(named(row, first), named(row, second), rating_of(row)) for row in read_table(path, (first, second, GRADES))]


def rating_of(row: Row) -> float:
    """The grade that a row tells, a number."""
    said = row.cells[next(column for column in GRADES if column in row.cells)]
    try:
        rating = float(said)
    except ValueError:
        rating = math.nan
    if not math.isfinite(rating):
        raise CrossmatchError(f"{row.where}: the rating is {said!r:.40}; a number was expected.")
    return rating


def mean_ratings(rated: Iterable[Rated], collection: Collection, side: str) -> dict[tuple[int, int], float]:
    """The rating of each pair by positions, the lower first; the mean where a pair was rated several times, or both ways round.

    >>> pets = Collection.of({"cat": ["A cat."], "dog": ["A dog."]})
    >>> mean_ratings([("dog", "cat", 2.0), ("cat", "dog", 3.0)], pets, "image")
    {(0, 1): 2.5}
    """
    place = {str(name): n for n, name in enumerate(collection.ids(side).tolist())}
    said: dict[tuple[int, int], list[float]] = defaultdict(list)
    for first, second, rating in rated:
        unknown = next((name for name in (first, second) if name not in place), None)
        if unknown is not None:
            raise CrossmatchError(f"there is no {side} {unknown!r:.60} in the collection. Name the one that was rated.")
        if first == second:
            raise CrossmatchError(f"{side} {first!r:.60} is rated against itself. Leave that pair out.")
        if not math.isfinite(rating):
            raise CrossmatchError(f"the {side}s {first!r:.60} and {second!r:.60} are rated {rating}; a number was expected.")
        a, b = sorted((place[first], place[second]))
        said[a, b].append(float(rating))
    return {pair: math.fsum(values) / len(values) for pair, values in sorted(said.items())}
