"""Names for the arrays that everything here is made of, and the one way to look ids up."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from crossmatch.core.errors import CrossmatchError

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]
IdArray = NDArray[np.str_]


def as_ids(values: Iterable[object], what: str) -> IdArray:
    """Ids as an array of unique, non-empty strings; integers are written out.

    >>> as_ids([391895, 522418], "image")
    array(['391895', '522418'], dtype='<U6')
    >>> as_ids(["a", "b", "a"], "image")
    Traceback (most recent call last):
    ...
    crossmatch.core.errors.CrossmatchError: image id 'a' occurs 2 times among 3; ids must be unique. Remove the repeats.
    """
    if isinstance(values, str | bytes) or (isinstance(values, np.ndarray) and values.ndim != 1):
        raise CrossmatchError(f"{what} ids are {values!r:.80}; a flat list of ids was expected.")
    ids = np.asarray([_as_text(v, what) for v in (values.tolist() if isinstance(values, np.ndarray) else values)], dtype=np.str_)
    if not len(ids):
        raise CrossmatchError(f"no {what} ids were given; at least one is needed. Check that the file is not empty.")
    unique, times = np.unique(ids, return_counts=True)
    if len(unique) < len(ids):
        worst = int(times.argmax())
        raise CrossmatchError(
            f"{what} id {str(unique[worst])!r} occurs {times[worst]} times among {len(ids):,}; "
            "ids must be unique. Remove the repeats."
        )
    if unique[0] == "":
        raise CrossmatchError(f"a {what} id is empty; every {what} needs a name. Fill it in.")
    return ids


def _as_text(value: object, what: str) -> str:
    if value is None or value != value:
        raise CrossmatchError(f"a {what} id is {value}; every {what} needs a name. Fill it in.")
    return value.decode() if isinstance(value, bytes) else str(value)


def as_whole(values: object, what: str) -> IntArray:
    """Indices as integers; fractions are refused instead of cut.

    >>> as_whole([0.0, 2.0], "rows")
    array([0, 2])
    """
    given = np.asarray(values)
    if given.size and given.dtype.kind not in "iuf":
        raise CrossmatchError(f"{what} have dtype {given.dtype}; whole numbers were expected.")
    if given.dtype.kind == "f" and not np.array_equal(given, np.floor(given)):
        raise CrossmatchError(f"{what} hold a number that is not whole. Give positions, counted from zero.")
    return np.array(given, dtype=np.int64)


def positions(ids: IdArray, known: IdArray, what: str, where: str) -> IntArray:
    """Where each of `ids` stands in `known`. `where` names the place that knows them, for the message.

    >>> positions(np.array(["c", "a"]), np.array(["a", "b", "c"]), "caption", "the collection")
    array([2, 0])
    """
    order = np.argsort(known, kind="stable")
    at = order[np.minimum(np.searchsorted(known, ids, sorter=order), len(known) - 1)]
    wrong = known[at] != ids
    if wrong.any():
        raise CrossmatchError(
            f"{wrong.sum():,} of {len(ids):,} {what} ids are not in {where}; first unknown: {str(ids[wrong.argmax()])!r} "
            f"({where} has ids such as {str(known[0])!r}). Check the split, or drop them."
        )
    return at.astype(np.int64)


def frozen(array: NDArray[np.generic]) -> None:
    """Forbid writing, so that a frozen dataclass is frozen all the way down."""
    array.flags.writeable = False


def require_finite(values: NDArray[np.floating], what: str, remedy: str) -> None:
    """Reject NaN and infinity before any number is printed."""
    bad = ~np.isfinite(values)
    if bad.any():
        first = tuple(int(i) for i in np.argwhere(bad)[0])
        raise CrossmatchError(
            f"{what}: {bad.sum():,} of {values.size:,} values are NaN or infinite, the first at {first}. {remedy}"
        )
