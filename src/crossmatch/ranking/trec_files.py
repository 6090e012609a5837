"""Read and write TREC run and qrels files, so that trec_eval and similar tools can score the same rankings.

    run      query  i2t  item  rank  score  tag      (the second column, usually `Q0`, is ignored by other tools; here it gives
    qrels    query  0    item  grade                  the direction, so that an image and a caption may have the same id)

Conventions that make the round trip exact, and the numbers of both tools equal:

- Scores are written with all digits. trec_eval stores them in float32, so scores closer than that are ties only there.
- The score gives the order; the rank column is for readers. Tied items are written in trec_eval's order, the last id first.
- A ranking cut at a depth is never cut through a tie: all items tied with the last one are written, too.
- trec_eval reads integer grades only (4.97 becomes 4). Other grades are multiplied by a number that makes them integers, for
  example 497 for 4.97. `x100` in the second column, which other tools ignore, records this. nDCG does not change with the unit of
  the grades; pass the lowest positive grade (`TrecFileSummary.positive_grade`) to trec_eval with `-l`.
- A positive that is not in the gallery (`Judgements.absent_positives`) is written as `absent:1`, …: it is never retrieved, but
  counts as a positive.
- Every judged pair is written, including those of queries without a positive. trec_eval counts such a query as zero; crossmatch
  leaves it out (`TrecFileSummary.queries_without_positives`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from sys import intern

import numpy as np
from numpy.typing import NDArray

from crossmatch.data.arrays import FloatArray, IdArray, IntArray, find_positions
from crossmatch.data.collection import SIDES, Collection
from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.data.io.atomic_write import atomic_write
from crossmatch.data.judgements import KINDS, Judgements
from crossmatch.data.scores import Run, Scores
from crossmatch.ranking.top_lists import Folds, iterate_rankings, require_direction

GRADE_FORMATS = ("whole", "given", "binary")
ABSENT_PREFIX = "absent:"  # ids of positives that are not in the gallery
SCALE_MARK = re.compile(r"x([1-9]\d*)")
MAX_SCALE = 10_000
MAX_GRADE = 2**31 - 1  # of trec_eval on any machine


@dataclass(frozen=True)
class TrecFileSummary:
    """What was written to a file."""

    rows: int
    queries: int
    positive_grade: float = 1  # the lowest written grade of a positive
    scale: int = 1  # written grades are this many times the real ones
    queries_without_positives: int = 0


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
) -> TrecFileSummary:
    """Write the rankings of a model as a run file. See `iterate_rankings` for the arguments.

    >>> import tempfile
    >>> from crossmatch.data.scores import Matrix
    >>> pets = Collection.from_captions({"cat": ["A cat."], "dog": ["A dog.", "It barks."]})
    >>> scores = Matrix(pets.image_ids, pets.caption_ids, np.array([[0.5, 0.25, 0.0], [0.0, 1.0, 1.0]]))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_run(scores, pets, "i2t", Path(folder) / "a.trec", depth=1, tag="mine")
    ...     print((Path(folder) / "a.trec").read_text())
    TrecFileSummary(rows=3, queries=2, positive_grade=1, scale=1, queries_without_positives=0)
    cat i2t cat#0 1 0.5 mine
    dog i2t dog#1 1 1.0 mine
    dog i2t dog#0 2 1.0 mine
    """
    query_ids, item_ids = (ids.tolist() for ids in _writable_ids(collection, direction))  # lists give text faster than arrays
    _require_writable([tag], "tag")
    row_count = query_count = 0
    with atomic_write(path) as file:
        for query, items, values in iterate_rankings(scores, collection, direction, depth, queries, folds):
            row_count, query_count = row_count + len(items), query_count + 1
            query_id, ranked = query_ids[query], zip(items.tolist(), values.tolist(), strict=True)
            lines = [f"{query_id} {direction} {item_ids[item]} {n} {value!r} {tag}\n" for n, (item, value) in enumerate(ranked, 1)]
            file.write("".join(lines).encode())
    return TrecFileSummary(row_count, query_count)


def read_run(path: Path) -> Run:
    """Read a run file: lines of `query Q0 item rank score tag`, where the second column may give the direction."""
    queries, marks, items, scores, tag = [], [], [], [], "run"
    for number, words in _read_columns(path, "query Q0 item rank score tag"):
        queries.append(intern(words[0]))  # millions of rows, but few different words
        marks.append(intern(words[1]))
        items.append(intern(words[2]))
        scores.append(_parse_number(words[4], "score", number))
        tag = words[5]
    if not queries:
        raise CrossmatchError("The run has no lines. Write it again.")
    direction_marks = np.asarray(marks) if any(mark in SIDES for mark in set(marks)) else None
    return Run(np.asarray(queries), np.asarray(items), np.asarray(scores), tag, direction_marks)


def write_qrels(
    judgements: Judgements, collection: Collection, direction: str, path: Path, grades: str = "whole"
) -> TrecFileSummary:
    """Write judgements as a qrels file, sorted by query and item.

    `grades="whole"` multiplies grades until they are integers, as trec_eval needs them (nothing is lost). "given" writes their
    fractions, which `read_qrels` reads and trec_eval does not. "binary" writes 1 for a positive and 0 for the rest.

    >>> import tempfile
    >>> pets = Collection.from_captions({"cat": ["A cat."], "dog": ["A dog."]})
    >>> judgements = Judgements("people", [0, 1, 1], [0, 0, 1], [4.97, 0.5, 3.0], (2, 2), positive=3.0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_qrels(judgements, pets, "t2i", Path(folder) / "a.txt")
    ...     print((Path(folder) / "a.txt").read_text())
    ...     read_qrels(Path(folder) / "a.txt", pets, "t2i", positive=3.0).grades
    TrecFileSummary(rows=3, queries=2, positive_grade=300, scale=100, queries_without_positives=0)
    cat#0 x100 cat 497
    cat#0 x100 dog 50
    dog#0 x100 dog 300
    array([4.97, 0.5 , 3.  ])
    """
    if grades not in GRADE_FORMATS:
        raise UsageError(f"Unknown format of grades {grades!r}. Use one of {', '.join(GRADE_FORMATS)}.")
    query_ids, item_ids = _writable_ids(collection, direction)
    query, item = judgements.oriented_pairs(direction)
    order = np.lexsort((item, query))
    query, item, original_grades = query[order], item[order], judgements.grades[order]
    is_positive = original_grades >= judgements.positive
    scale, numbers, positive_grade = _format_grades(original_grades, is_positive, judgements.positive, grades)
    mark = "0" if scale == 1 else f"x{scale}"
    absent_ids = [f"{ABSENT_PREFIX}{n}" for n in range(1, len(judgements.absent_positives) + 1)]
    queries = [*query_ids[query].tolist(), *query_ids[list(judgements.absent_positives)].tolist()]
    items = [*item_ids[item].tolist(), *absent_ids]
    if np.isin(absent_ids, item_ids).any():
        raise CrossmatchError(
            f"The id {absent_ids[0]!r} of an item is reserved for a positive outside the gallery. Rename the item."
        )
    with atomic_write(path) as file:
        for q, i, number in zip(queries, items, [*numbers, *[positive_grade] * len(absent_ids)], strict=True):
            file.write(f"{q} {mark} {i} {number!r}\n".encode())
    with_positives = set(query_ids[query[is_positive]].tolist()) | set(queries[len(query) :])
    query_count = len(set(queries))
    return TrecFileSummary(len(queries), query_count, positive_grade, scale, query_count - len(with_positives))


def read_qrels(
    path: Path,
    collection: Collection,
    direction: str,
    *,
    positive: float = 1.0,
    complete: bool = False,
    source: str | None = None,
) -> Judgements:
    """Read a qrels file about a collection: lines of `query 0 item grade`.

    `positive` is in the unit of the real grades: `x100` in the second column says that written grades were multiplied by 100. The
    default source is the name of the file.
    """
    require_direction(direction)
    kind, sides = next((kind, sides) for kind, (sides, directions) in KINDS.items() if direction in directions)
    queries, items, grades = [], [], []
    try:
        for number, words in _read_columns(path, "query 0 item grade"):
            queries.append(words[0])
            items.append(words[2])
            scale = SCALE_MARK.fullmatch(words[1])
            grades.append(_parse_number(words[3], "grade", number) / (int(scale[1]) if scale else 1))
        if not queries:
            raise CrossmatchError("The file has no lines. Write it again.")
        query_ids, item_ids = (collection.ids(side) for side in SIDES[direction])
        query, item = find_positions(np.asarray(queries), query_ids, "query", "the collection"), np.asarray(items)
        is_absent = np.char.startswith(item, ABSENT_PREFIX) & ~np.isin(item, item_ids)
        pairs = query[~is_absent], find_positions(item[~is_absent], item_ids, "item", "the collection")
        rows, columns = pairs if SIDES[direction] == sides else pairs[::-1]
        shape = len(collection.ids(sides[0])), len(collection.ids(sides[1]))
        absent_positives = tuple(query[is_absent].tolist())
        only_direction = direction if absent_positives else ""
        return Judgements(
            source or path.stem, rows, columns, np.asarray(grades)[~is_absent], shape, positive, complete, kind,
            only_direction=only_direction, absent_positives=absent_positives,
        )  # fmt: skip
    except CrossmatchError as error:
        raise type(error)(f"{path}: {error}") from None


def _format_grades(
    grades: FloatArray, is_positive: NDArray[np.bool_], threshold: float, grade_format: str
) -> tuple[int, list[int] | list[float], float]:
    """The scale, the grades to write, and the lowest positive grade among them."""
    if grade_format == "binary":
        return 1, is_positive.astype(int).tolist(), 1
    if grade_format == "given":
        return 1, [int(g) if g.is_integer() else g for g in grades.tolist()], threshold
    scale = _integer_scale(np.unique(grades))
    numbers = np.rint(grades * scale).astype(np.int64)
    lowest = round(threshold * scale)
    # A threshold that is not an integer after scaling, such as 1/3 of grades in tenths, becomes the lowest positive grade.
    return scale, numbers.tolist(), lowest if np.array_equal(numbers >= lowest, is_positive) else int(numbers[is_positive].min())


def _integer_scale(grades: FloatArray) -> int:
    """The first of 1, 10, 100, … and then 2, 3, … that makes all grades integers, from which they are recovered exactly.

    >>> _integer_scale(np.array([4.97, 2.5])), _integer_scale(np.array([1 / 3, 1.0]))
    (100, 3)
    """
    scales: tuple[int, ...] = (1, 10, 100, 1000, MAX_SCALE, *range(2, MAX_SCALE))
    for scale in scales:
        whole = np.rint(grades * scale)
        if (np.abs(whole) <= MAX_GRADE).all() and np.array_equal(whole / scale, grades):
            return scale
    example = next((g for g in grades.tolist() if round(g * MAX_SCALE) / MAX_SCALE != g), float(grades[-1]))
    raise CrossmatchError(
        f"Grades such as {example!r} cannot be made whole numbers by a factor of up to {MAX_SCALE:,}, as TREC files need them. "
        "Round them, or write them with fractions (grades given) or as 1 and 0 (grades binary)."
    )


def _writable_ids(collection: Collection, direction: str) -> tuple[IdArray, IdArray]:
    """The ids of queries and items, after a check that they fit into columns separated by spaces."""
    require_direction(direction)
    query, item = SIDES[direction]
    for side in dict.fromkeys((query, item)):
        _require_writable(collection.ids(side).tolist(), f"{side} id")
    return collection.ids(query), collection.ids(item)


def _require_writable(words: Iterable[str], label: str) -> None:
    for word in words:
        if word.split() != [word]:
            raise CrossmatchError(
                f"The {label} {word!r} has a space or is empty, but a space separates the columns of a TREC file. Rename it, for "
                f"example to {'_'.join(word.split()) or 'a'!r}."
            )
        if word.startswith("\ufeff") or word.encode("utf-8", "replace").decode() != word:
            raise CrossmatchError(f"The {label} {word!r} cannot be stored as UTF-8 text. Rename it.")


def _read_columns(path: Path, form: str) -> Iterator[tuple[int, list[str]]]:
    """The words of each line that is not empty, with the line number."""
    if not path.is_file():
        raise UsageError("No such file. Check the path.")
    expected = len(form.split())
    try:
        with path.open(encoding="utf-8-sig") as file:
            for number, line in enumerate(file, 1):
                words = line.split()
                if words and len(words) != expected:
                    raise CrossmatchError(f"Line {number} has {len(words)} columns, expected {expected}: {form}.")
                if words:
                    yield number, words
    except UnicodeDecodeError as error:
        raise CrossmatchError(f"The file is not UTF-8 text ({error.reason}). Write it again.") from None


def _parse_number(word: str, label: str, line: int) -> float:
    try:
        return float(word)
    except ValueError:
        raise CrossmatchError(f"Line {line} has the {label} {word!r}, which is not a number.") from None
