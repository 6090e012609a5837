"""Array types, and checks of arrays and ids that all data classes share."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from crossmatch.data.errors import CrossmatchError

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]
IdArray = NDArray[np.str_]


def as_ids(values: Iterable[object], kind: str) -> IdArray:
    """Convert ids to an array of unique, non-empty strings.

    Ids may be strings, bytes or integers; `kind` says in error messages what they identify.

    >>> as_ids([391895, 522418], "image")
    array(['391895', '522418'], dtype='<U6')
    >>> as_ids(["a", "b", "a"], "image")
    Traceback (most recent call last):
    ...
    crossmatch.data.errors.CrossmatchError: image id 'a' occurs 2 times among 3 ids. Remove the repeats: ids must be unique.
    """
    if isinstance(values, str | bytes) or (isinstance(values, np.ndarray) and values.ndim != 1):
        raise CrossmatchError(f"{kind} ids must be a flat list, got {values!r:.80}.")
    ids = np.asarray([_id_text(v, kind) for v in (values.tolist() if isinstance(values, np.ndarray) else values)], dtype=np.str_)
    if not len(ids):
        raise CrossmatchError(f"There are no {kind} ids; at least one is needed. Check that the file is not empty.")
    unique, times = np.unique(ids, return_counts=True)
    if len(unique) < len(ids):
        worst = int(times.argmax())
        raise CrossmatchError(
            f"{kind} id {str(unique[worst])!r} occurs {times[worst]} times among {len(ids):,} ids. Remove the repeats: ids must be "
            "unique."
        )
    if unique[0] == "":
        raise CrossmatchError(f"An empty {kind} id is not allowed. Give every {kind} an id.")
    return ids


def _id_text(value: object, kind: str) -> str:
    if value is None or value != value:
        raise CrossmatchError(f"A missing {kind} id ({value}) is not allowed. Give every {kind} an id.")
    return value.decode() if isinstance(value, bytes) else str(value)


def as_integers(values: object, label: str) -> IntArray:
    """Convert positions to integers. Fractions are an error.

    >>> as_integers([0.0, 2.0], "rows")
    array([0, 2])
    """
    numbers = np.asarray(values)
    if numbers.size and numbers.dtype.kind not in "iuf":
        raise CrossmatchError(f"{label} have dtype {numbers.dtype}, expected whole numbers.")
    if numbers.dtype.kind == "f" and not np.array_equal(numbers, np.floor(numbers)):
        raise CrossmatchError(f"{label} contain a number that is not whole. Use positions, counted from zero.")
    return np.array(numbers, dtype=np.int64)


def find_positions(ids: IdArray, all_ids: IdArray, kind: str, container: str) -> IntArray:
    """Find the position of each id.

    An unknown id is an error; `kind` and `container` describe the ids and `all_ids` in its message.

    >>> find_positions(np.array(["c", "a"]), np.array(["a", "b", "c"]), "caption", "the collection")
    array([2, 0])
    """
    order = np.argsort(all_ids, kind="stable")
    positions = order[np.minimum(np.searchsorted(all_ids, ids, sorter=order), len(all_ids) - 1)]
    is_unknown = all_ids[positions] != ids
    if is_unknown.any():
        raise CrossmatchError(
            f"{is_unknown.sum():,} of {len(ids):,} {kind} ids are not in {container}; first unknown: "
            f"{str(ids[is_unknown.argmax()])!r} ({container} has ids such as {str(all_ids[0])!r}). Check the split, or drop them."
        )
    return positions.astype(np.int64)


def make_read_only(array: NDArray[np.generic]) -> None:
    """Forbid writing to an array, so that a frozen dataclass cannot change."""
    array.flags.writeable = False


def require_finite(values: NDArray[np.floating], label: str, remedy: str) -> None:
    """Raise `CrossmatchError` if a value is NaN or infinite. `remedy` says how to fix it."""
    is_bad = ~np.isfinite(values)
    if is_bad.any():
        first = tuple(int(i) for i in np.argwhere(is_bad)[0])
        raise CrossmatchError(
            f"{label}: {is_bad.sum():,} of {values.size:,} values are NaN or infinite, the first at {first}. {remedy}"
        )
