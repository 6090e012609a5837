"""TREC files, so that trec_eval and its kin can score what crossmatch ranks, and the other way round.

    run      query  i2t  item  rank  score  tag      (the second column is `Q0` in most files and read by nobody; here it names
    qrels    query  0    item  grade                  the direction, so that a number may be an image's id and a caption's)

Conventions that make the round trip exact, and the numbers of both sides equal:

- Scores are written with all their digits. trec_eval keeps them in float32, so scores closer than that are ties to it alone.
- The score decides; the rank column is for people. Tied items stand in the order in which trec_eval takes them, the last id first.
- A ranking that is cut at a depth is never cut through a tie: all items level with the last one are written too.
- trec_eval reads whole grades alone (4.97 is 4 to it). Grades that are not whole are multiplied by a number that makes all of them
  whole, 497 for 4.97, and `x100` in the second column, which nobody else reads, says so. nDCG does not change with the unit of the
  grades; where positives begin is given to trec_eval with `-l` (`Written.level`).
- A positive that is not in the gallery (`Judgements.absent`) is written as `absent:1`, …: it is never found, but it counts.
- Every judged pair is written, also those of queries without a positive. trec_eval counts such a query as zero where crossmatch
  leaves it out (`Written.bare` tells how many there are).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from sys import intern

import numpy as np
from numpy.typing import NDArray

from crossmatch.core.arrays import FloatArray, IdArray, IntArray, positions
from crossmatch.core.collection import SIDES, Collection
from crossmatch.core.errors import CrossmatchError, WrongWords
from crossmatch.core.judgements import KINDS, Judgements
from crossmatch.core.rankings import Folds, rankings
from crossmatch.core.scores import Run, Scores
from crossmatch.core.whole import whole_file

GRADES = ("whole", "given", "binary")
ABSENT = "absent:"  # how the names of positives begin that are not in the gallery
SCALE = re.compile(r"x([1-9]\d*)")
LARGEST_SCALE = 10_000
LARGEST_GRADE = 2**31 - 1  # of trec_eval on any machine


@dataclass(frozen=True)
class Written:
    """What a file holds. Grades in it are `scale` times the real ones, and positive from `level` on."""

    rows: int
    queries: int
    level: float = 1
    scale: int = 1
    bare: int = 0  # queries without a positive


def write_run(
    scores: Scores,
    collection: Collection,
    direction: str,
    path: Path,
    *,
    depth: int | None = None,
    queries: IntArray | None = None,
    folds: Folds | None = None,
    tag: str = "crossmatch",
) -> Written:
    """Write the rankings of a model as a run file; what they are is told by `rankings`.

    >>> import tempfile
    >>> from crossmatch.core.scores import Matrix
    >>> pets = Collection.of({"cat": ["A cat."], "dog": ["A dog.", "It barks."]})
    >>> said = Matrix(pets.image_ids, pets.caption_ids, np.array([[0.5, 0.25, 0.0], [0.0, 1.0, 1.0]]))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_run(said, pets, "i2t", Path(folder) / "a.trec", depth=1, tag="mine")
    ...     print((Path(folder) / "a.trec").read_text())
    Written(rows=3, queries=2, level=1, scale=1, bare=0)
    cat i2t cat#0 1 0.5 mine
    dog i2t dog#1 1 1.0 mine
    dog i2t dog#0 2 1.0 mine
    """
    query_ids, item_ids = (ids.tolist() for ids in _plain_sides(collection, direction))  # text comes out of a list much faster
    _plain([tag], "tag")
    rows = asked = 0
    with whole_file(path) as file:
        for query, items, values in rankings(scores, collection, direction, depth, queries, folds):
            rows, asked = rows + len(items), asked + 1
            head, listed = query_ids[query], zip(items.tolist(), values.tolist(), strict=True)
            lines = [f"{head} {direction} {item_ids[item]} {n} {value!r} {tag}\n" for n, (item, value) in enumerate(listed, 1)]
            file.write("".join(lines).encode())
    return Written(rows, asked)


def read_run(path: Path) -> Run:
    """Read a run file: lines of `query Q0 item rank score tag`, where the second word may name the direction."""
    queries, marks, items, scores, tag = [], [], [], [], "run"
    for number, words in _lines(path, "query Q0 item rank score tag"):
        queries.append(intern(words[0]))  # millions of rows, but few different words
        marks.append(intern(words[1]))
        items.append(intern(words[2]))
        scores.append(_number(words[4], "score", number))
        tag = words[5]
    if not queries:
        raise CrossmatchError("the run has no lines. Write it again.")
    marked = np.asarray(marks) if any(mark in SIDES for mark in set(marks)) else None
    return Run(np.asarray(queries), np.asarray(items), np.asarray(scores), tag, marked)


def write_qrels(judgements: Judgements, collection: Collection, direction: str, path: Path, grades: str = "whole") -> Written:
    """Write judgements as a qrels file, by query and item.

    `grades`: `whole` as trec_eval needs them, multiplied if they must be (nothing is lost); `given`, with their fractions, which
    `read_qrels` reads and trec_eval does not; `binary`, 1 for a positive and 0 for the rest, which loses the grades.

    >>> import tempfile
    >>> pets = Collection.of({"cat": ["A cat."], "dog": ["A dog."]})
    >>> said = Judgements("people", [0, 1, 1], [0, 0, 1], [4.97, 0.5, 3.0], (2, 2), positive=3.0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_qrels(said, pets, "t2i", Path(folder) / "a.txt")
    ...     print((Path(folder) / "a.txt").read_text())
    ...     read_qrels(Path(folder) / "a.txt", pets, "t2i", positive=3.0).grades
    Written(rows=3, queries=2, level=300, scale=100, bare=0)
    cat#0 x100 cat 497
    cat#0 x100 dog 50
    dog#0 x100 dog 300
    array([4.97, 0.5 , 3.  ])
    """
    if grades not in GRADES:
        raise WrongWords(f"grades is {grades!r}; one of {', '.join(GRADES)} was expected.")
    query_ids, item_ids = _plain_sides(collection, direction)
    query, item = _oriented(judgements, direction)
    order = np.lexsort((item, query))
    query, item, given = query[order], item[order], judgements.grades[order]
    positive = given >= judgements.positive
    scale, numbers, level = _as_written(given, positive, judgements.positive, grades)
    mark = "0" if scale == 1 else f"x{scale}"
    absent = [f"{ABSENT}{n}" for n in range(1, len(judgements.absent) + 1)]
    queries = [*query_ids[query].tolist(), *query_ids[list(judgements.absent)].tolist()]
    items = [*item_ids[item].tolist(), *absent]
    if np.isin(absent, item_ids).any():
        raise CrossmatchError(f"an item has the id {absent[0]!r}, which means a positive that is not in the gallery. Rename it.")
    with whole_file(path) as file:
        for q, i, number in zip(queries, items, [*numbers, *[level] * len(absent)], strict=True):
            file.write(f"{q} {mark} {i} {number!r}\n".encode())
    found = set(query_ids[query[positive]].tolist()) | set(queries[len(query) :])
    return Written(len(queries), len(set(queries)), level, scale, len(set(queries)) - len(found))


def read_qrels(
    path: Path,
    collection: Collection,
    direction: str,
    *,
    positive: float = 1.0,
    complete: bool = False,
    source: str | None = None,
    folds: Folds | None = None,
    only: bool = False,
) -> Judgements:
    """Read a qrels file about this collection: lines of `query 0 item grade`. `positive` is in the unit of the real grades.

    Grades may have fractions; `x100` in the second column says that they were multiplied by 100. What a file cannot say, the
    name of the judgements, where positives begin, whether all pairs were judged, the folds (of rows and columns), and whether they
    hold for this direction `only`, is given here.
    """
    if direction not in SIDES:
        raise WrongWords(f"there is no direction {direction!r}; one of {', '.join(SIDES)} was expected.")
    kind, sides = next((kind, sides) for kind, (sides, directions) in KINDS.items() if direction in directions)
    queries, items, grades = [], [], []
    try:
        for number, words in _lines(path, "query 0 item grade"):
            queries.append(words[0])
            items.append(words[2])
            scale = SCALE.fullmatch(words[1])
            grades.append(_number(words[3], "grade", number) / (int(scale[1]) if scale else 1))
        if not queries:
            raise CrossmatchError("it has no lines. Write it again.")
        query_ids, item_ids = (collection.ids(side) for side in SIDES[direction])
        query, item = positions(np.asarray(queries), query_ids, "query", "the collection"), np.asarray(items)
        lost = np.char.startswith(item, ABSENT) & ~np.isin(item, item_ids)
        pair = query[~lost], positions(item[~lost], item_ids, "item", "the collection")
        rows, columns = pair if SIDES[direction] == sides else pair[::-1]
        shape = len(collection.ids(sides[0])), len(collection.ids(sides[1]))
        absent = tuple(query[lost].tolist())
        return Judgements(
            source or path.stem, rows, columns, np.asarray(grades)[~lost], shape, positive, complete, kind, folds,
            direction if only or absent else "", absent,
        )  # fmt: skip
    except CrossmatchError as error:
        raise type(error)(f"{path}: {error}") from None


# Words and numbers


def _oriented(judgements: Judgements, direction: str) -> tuple[IntArray, IntArray]:
    """The judged pairs as (query, item)."""
    if direction not in judgements.directions:
        raise CrossmatchError(
            f"{judgements.kind} judgements have no direction {direction!r}; they have {' and '.join(judgements.directions)}."
        )
    straight = SIDES[direction] == judgements.sides
    return (judgements.rows, judgements.columns) if straight else (judgements.columns, judgements.rows)


def _as_written(
    given: FloatArray, positive: NDArray[np.bool_], threshold: float, grades: str
) -> tuple[int, list[int] | list[float], float]:
    """The scale, the numbers to write, and the least one that is positive."""
    if grades == "binary":
        return 1, positive.astype(int).tolist(), 1
    if grades == "given":
        return 1, [int(g) if g.is_integer() else g for g in given.tolist()], threshold
    scale = _whole_scale(np.unique(given))
    numbers = np.rint(given * scale).astype(np.int64)
    level = round(threshold * scale)
    # A threshold that is no whole number of units, such as 1/3 of grades in tenths, has the lowest positive grade for its level.
    return scale, numbers.tolist(), level if np.array_equal(numbers >= level, positive) else int(numbers[positive].min())


def _whole_scale(grades: FloatArray) -> int:
    """The first number among 1, 10, 100, … and then 2, 3, … that makes all grades whole, and from which they come back exactly.

    >>> _whole_scale(np.array([4.97, 2.5])), _whole_scale(np.array([1 / 3, 1.0]))
    (100, 3)
    """
    scales: tuple[int, ...] = (1, 10, 100, 1000, LARGEST_SCALE, *range(2, LARGEST_SCALE))
    for scale in scales:
        whole = np.rint(grades * scale)
        if (np.abs(whole) <= LARGEST_GRADE).all() and np.array_equal(whole / scale, grades):
            return scale
    strange = next((g for g in grades.tolist() if round(g * LARGEST_SCALE) / LARGEST_SCALE != g), float(grades[-1]))
    raise CrossmatchError(
        f"grades such as {strange!r} are no multiples of one unit down to 1/{LARGEST_SCALE:,}, so they cannot be made whole, as "
        "TREC files need them. Round them, or write them as they are (grades given) or as 1 and 0 (grades binary)."
    )


def _plain_sides(collection: Collection, direction: str) -> tuple[IdArray, IdArray]:
    """The ids of queries and items, all fit for a file whose columns are parted by spaces."""
    if direction not in SIDES:
        raise WrongWords(f"there is no direction {direction!r}; one of {', '.join(SIDES)} was expected.")
    query, item = SIDES[direction]
    for side in dict.fromkeys((query, item)):
        _plain(collection.ids(side).tolist(), f"{side} id")
    return collection.ids(query), collection.ids(item)


def _plain(words: Iterable[str], what: str) -> None:
    for word in words:
        if word.split() != [word]:
            raise CrossmatchError(
                f"{what} {word!r} has a space, which would part it into two columns of a TREC file. Rename it, for example to "
                f"{'_'.join(word.split()) or 'a'!r}."
            )
        if word.startswith("\ufeff") or word.encode("utf-8", "replace").decode() != word:
            raise CrossmatchError(f"{what} {word!r} cannot be written as text in UTF-8 and read again. Rename it.")


def _lines(path: Path, form: str) -> Iterator[tuple[int, list[str]]]:
    """The words of each line that is not empty, and its number."""
    if not path.is_file():
        raise WrongWords("there is no such file. Check the path.")
    expected = len(form.split())
    try:
        with path.open(encoding="utf-8-sig") as file:
            for number, line in enumerate(file, 1):
                words = line.split()
                if words and len(words) != expected:
                    raise CrossmatchError(f"line {number} has {len(words)} words; {COUNTED[expected]} were expected: {form}.")
                if words:
                    yield number, words
    except UnicodeDecodeError as error:
        raise CrossmatchError(f"it is not text in UTF-8 ({error.reason}). Write it again.") from None


COUNTED = {4: "four", 6: "six"}


def _number(word: str, what: str, line: int) -> float:
    try:
        return float(word)
    except ValueError:
        raise CrossmatchError(f"line {line} has the {what} {word!r}, which is not a number.") from None
