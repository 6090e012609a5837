"""What a model said: embeddings, a full matrix, or a run file; checked once, and then only read.

All three answer one question for the ranking: the score of image i with caption j. For embeddings that is

    s(i, j) = Σ_k u_ik · v_jk / (|u_i| · |v_j|)        (cosine; without the norms for "dot")

summed in float64 in one fixed order (`exact_dot`), so that a pair has one score whatever the block, the thread, the
neighbours in the batch or the machine's matrix product.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crossmatch.core.arrays import BoolArray, FloatArray, IdArray, IntArray, as_ids, frozen, positions, require_finite
from crossmatch.core.collection import SIDES, Collection
from crossmatch.core.errors import CrossmatchError

Number = np.floating | np.integer | np.bool_


def exact_dot(a: NDArray[np.floating], b: NDArray[np.floating]) -> FloatArray:
    """Row-wise dot products in float64: the list of products is folded in half, end onto beginning, until one number is left.

    The order of the additions is part of the definition. The compiled path folds alike, so both agree to the last bit, and
    the fold runs on vector instructions without any freedom for a compiler to add in an order of its own.

    >>> exact_dot(np.float32([[1, 2, 3]]), np.float32([[4, 5, 6]]))      # (4 + 18) + 10
    array([32.])
    """
    sums = a.astype(np.float64) * b.astype(np.float64)
    width = sums.shape[-1]
    while width > 1:
        half = (width + 1) // 2
        sums[..., : width - half] += sums[..., half:width]
        width = half
    return np.asarray(sums[..., 0], dtype=np.float64)


@dataclass(frozen=True, eq=False)
class Embeddings:
    """One vector per image and per caption, compared by cosine (or `similarity="dot"`).

    A model that embeds texts only, or images only, has no vectors on the other side (`None`).

    >>> two = Embeddings(["i"], [[3.0, 4.0]], ["a", "b"], [[3.0, 4.0], [0.0, 1.0]])
    >>> two.pairs(np.array([0, 0]), np.array([0, 1]))
    array([1. , 0.8])
    >>> two.pairs(np.array([0]), np.array([1]), "t2t")
    array([0.8])
    """

    image_ids: IdArray | None
    image_vectors: NDArray[np.floating] | None
    caption_ids: IdArray | None
    caption_vectors: NDArray[np.floating] | None
    similarity: str = "cosine"
    image_scale: FloatArray | None = None  # derived: 1 / |u|, or ones for the dot product
    caption_scale: FloatArray | None = None

    def __post_init__(self) -> None:
        if self.similarity not in ("cosine", "dot"):
            raise CrossmatchError(f"similarity is {self.similarity!r}; 'cosine' or 'dot' was expected.")
        if self.image_vectors is None and self.caption_vectors is None:
            raise CrossmatchError("there are neither image nor caption embeddings. Give at least one of the two.")
        for side in ("image", "caption"):
            if getattr(self, f"{side}_vectors") is None:
                object.__setattr__(self, f"{side}_ids", None)
                continue
            ids = as_ids(getattr(self, f"{side}_ids"), side)
            vectors = _as_vectors(getattr(self, f"{side}_vectors"), ids, side)
            squares = _squared_lengths(vectors, ids, side)
            scale = _inverse_lengths(squares, ids, side) if self.similarity == "cosine" else np.ones(len(ids))
            object.__setattr__(self, f"{side}_ids", ids)
            object.__setattr__(self, f"{side}_vectors", vectors)
            object.__setattr__(self, f"{side}_scale", scale)
        widths = {side: self.vectors(side).shape[1] for side in ("image", "caption") if self.has(side)}
        if len(set(widths.values())) > 1:
            raise CrossmatchError(
                f"image embeddings have {widths['image']} dimensions and caption embeddings {widths['caption']}; "
                "both must live in one space. Check that they come from the same model."
            )

    def has(self, side: str) -> bool:
        return getattr(self, f"{side}_vectors") is not None

    def vectors(self, side: str) -> NDArray[np.floating]:
        found: NDArray[np.floating] | None = getattr(self, f"{side}_vectors")
        assert found is not None
        return found

    def scale(self, side: str) -> FloatArray:
        found: FloatArray | None = getattr(self, f"{side}_scale")
        assert found is not None
        return found

    @property
    def shape(self) -> tuple[int, int]:
        """(images, captions); a side that is not there has none."""
        n, m = (len(self.vectors(side)) if self.has(side) else 0 for side in ("image", "caption"))
        return n, m

    @property
    def width(self) -> int:
        """Dimensions of either side."""
        return int((self.image_vectors if self.image_vectors is not None else self.caption_vectors).shape[1])  # type: ignore[union-attr]

    @property
    def directions(self) -> tuple[str, ...]:
        """The directions in which these embeddings can be searched."""
        return tuple(d for d, sides in SIDES.items() if all(map(self.has, sides)))

    def pairs(self, query: IntArray, item: IntArray, direction: str = "i2t") -> FloatArray:
        """The score of each query with its item, in blocks so that memory stays small."""
        (a, a_scale), (b, b_scale) = ((self.vectors(side), self.scale(side)) for side in SIDES[direction])
        out = np.empty(len(query))
        step = max(1, (1 << 22) // a.shape[1])
        for at in range(0, len(query), step):
            i, j = query[at : at + step], item[at : at + step]
            out[at : at + step] = exact_dot(a[i], b[j]) * (a_scale[i] * b_scale[j])
        return out

    def permuted(self, order: Mapping[str, IntArray]) -> Embeddings:
        """The same vectors in another order of the sides named; nothing about them needs to be checked again."""
        out = copy.copy(self)
        for side, at in order.items():
            for what in ("ids", "vectors", "scale"):
                object.__setattr__(out, f"{side}_{what}", getattr(self, f"{side}_{what}")[at])
        return out

    def aligned(self, collection: Collection, partial: bool = False) -> Embeddings:
        """The same embeddings in the collection's order, exactly its items (or, for a partial evaluation, at least them)."""
        sides = [side for side in ("image", "caption") if self.has(side)]
        return self.permuted({side: _find(collection.ids(side), getattr(self, f"{side}_ids"), side, partial) for side in sides})


@dataclass(frozen=True, eq=False)
class Matrix:
    """A score for every image (row) and caption (column), in any real dtype.

    >>> Matrix(["i"], ["a", "b"], [[0.25, 0.5]]).pairs(np.array([0]), np.array([1]))
    array([0.5])
    """

    image_ids: IdArray
    caption_ids: IdArray
    values: NDArray[Number]

    def __post_init__(self) -> None:
        object.__setattr__(self, "image_ids", as_ids(self.image_ids, "image"))
        object.__setattr__(self, "caption_ids", as_ids(self.caption_ids, "caption"))
        values = np.asanyarray(self.values)
        object.__setattr__(self, "values", values)
        if values.shape != self.shape:
            raise CrossmatchError(
                f"scores have shape {values.shape}; {self.shape} (images x captions) was expected. Transpose, or check the ids."
            )
        if not np.issubdtype(values.dtype, np.floating) and not np.issubdtype(values.dtype, np.integer) and values.dtype != bool:
            raise CrossmatchError(f"scores have dtype {values.dtype}; real numbers were expected.")
        if values.dtype.kind in "iu" and values.size and max(abs(int(values.min())), abs(int(values.max()))) > 2**53:
            raise CrossmatchError(
                "scores hold whole numbers beyond 2^53, which float64 cannot tell apart. Scale them, or give their ranks."
            )
        if np.issubdtype(values.dtype, np.floating):
            for at in range(0, len(values), 256):
                require_finite(
                    np.asarray(values[at : at + 256], np.float64),
                    "scores",
                    "Look for a division by zero or an overflow in the model.",
                )

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.image_ids), len(self.caption_ids)

    @property
    def directions(self) -> tuple[str, ...]:
        return "i2t", "t2i"

    def pairs(self, query: IntArray, item: IntArray, direction: str = "i2t") -> FloatArray:
        return (self.values[query, item] if direction == "i2t" else self.values[item, query]).astype(np.float64)

    def aligned(self, collection: Collection, partial: bool = False) -> Matrix:
        i = _find(collection.image_ids, self.image_ids, "image", partial)
        j = _find(collection.caption_ids, self.caption_ids, "caption", partial)
        same = np.array_equal(i, np.arange(len(i))) and np.array_equal(j, np.arange(len(j)))
        values = self.values if same and self.values.shape == collection.shape else self.values[np.ix_(i, j)]
        return Matrix(collection.image_ids, collection.caption_ids, values)


@dataclass(frozen=True, eq=False)
class Run:
    """The top of each query's ranking, as a TREC run file has it. What is not listed stands below all that is.

    Rankings of images for captions (`t2i`) and of captions for images (`i2t`) may both be there. The score decides
    the order, equal scores are ties, and the rank column is not used (as trec_eval does).
    """

    queries: IdArray
    items: IdArray
    values: FloatArray
    tag: str = "run"
    marks: IdArray | None = None  # the second column, where it says i2t, t2i, t2t or i2i

    def __post_init__(self) -> None:
        if not len(self.queries) == len(self.items) == len(self.values):
            raise CrossmatchError("a run needs one query, one item and one score per row.")
        require_finite(self.values, "scores of the run", "Every row needs a finite score.")

    def rows(self, collection: Collection, direction: str) -> BoolArray:
        """Which rows are of this direction: as they are marked, else as their ids tell."""
        queries, items = (collection.ids(side) for side in SIDES[direction])
        found = np.isin(self.queries, queries) & np.isin(self.items, items)
        if self.marks is not None:
            found &= (self.marks == direction) | ~np.isin(self.marks, list(SIDES))
        return np.asarray(found, dtype=bool)

    def side(self, collection: Collection, direction: str) -> tuple[IntArray, IntArray, FloatArray]:
        """The rows of this direction as (query position, item position, score)."""
        kept = self.rows(collection, direction)
        query_ids, item_ids = (collection.ids(side) for side in SIDES[direction])
        query = positions(self.queries[kept], query_ids, "query", "the collection") if kept.any() else np.zeros(0, np.int64)
        item = positions(self.items[kept], item_ids, "item", "the collection") if kept.any() else np.zeros(0, np.int64)
        key = np.sort(query * len(item_ids) + item)
        if (key[1:] == key[:-1]).any():
            q, c = divmod(int(key[1:][key[1:] == key[:-1]][0]), len(item_ids))
            raise CrossmatchError(
                f"the run lists item {str(item_ids[c])!r} twice for query {str(query_ids[q])!r}. Keep one of the rows."
            )
        return query, item, self.values[kept]

    def aligned(self, collection: Collection, partial: bool = False) -> Run:
        """Check that every row is about this collection (a partial evaluation leaves the others out)."""
        ways = np.stack([self.rows(collection, direction) for direction in SIDES])
        if (ways.sum(axis=0) > 1).any():
            raise CrossmatchError(
                f"row {int((ways.sum(axis=0) > 1).argmax()) + 1} of the run can be read in two directions, because an image and a "
                "caption share an id. Write i2t, t2i, t2t or i2i into the second column."
            )
        known = ways.any(axis=0)
        if partial:
            marks = None if self.marks is None else self.marks[known]
            return Run(self.queries[known], self.items[known], self.values[known], self.tag, marks)
        if not known.all():
            row = int((~known).argmax())
            raise CrossmatchError(
                f"row {row + 1} of the run pairs {str(self.queries[row])!r} with {str(self.items[row])!r}, which is no pair of "
                f"items of the collection (image ids look like {str(collection.image_ids[0])!r}, caption ids like "
                f"{str(collection.caption_ids[0])!r}). Check the split."
            )
        return self


Scores = Embeddings | Matrix | Run


def _find(wanted: IdArray, given: IdArray, what: str, partial: bool = False) -> IntArray:
    """Where the collection's items are among the given ones; all of them must be there, and no stranger."""
    if len(wanted) == len(given) and (wanted == given).all():
        return np.arange(len(wanted))
    missing = ~np.isin(wanted, given)
    strange = ~np.isin(given, wanted)
    if missing.any():
        hint = f"; its first id is {str(given[0])!r}" if strange.any() else ""
        raise CrossmatchError(
            f"{(~missing).sum():,} of the {len(wanted):,} {what} ids of the benchmark are there{hint}; first missing: "
            f"{str(wanted[missing.argmax()])!r}. Add the missing ones, or check the split."
        )
    if strange.any() and not partial:
        raise CrossmatchError(
            f"{strange.sum():,} {what} ids are not in the benchmark; first unknown: {str(given[strange.argmax()])!r}. "
            "Leave them out: they would change every rank."
        )
    return positions(wanted, given, what, "the scores")


def _as_vectors(values: ArrayLike, ids: IdArray, side: str) -> NDArray[np.floating]:
    vectors = np.asarray(values)
    if vectors.ndim != 2 or len(vectors) != len(ids):
        raise CrossmatchError(
            f"{side} embeddings have shape {vectors.shape}; ({len(ids):,}, dimensions) was expected, one row per id."
        )
    if not np.issubdtype(vectors.dtype, np.floating):
        if not np.issubdtype(vectors.dtype, np.integer):
            raise CrossmatchError(f"{side} embeddings have dtype {vectors.dtype}; real numbers were expected.")
        vectors = vectors.astype(np.float64)
    if vectors.dtype not in (np.float32, np.float64):
        vectors = vectors.astype(np.float32 if vectors.dtype.itemsize < 4 else np.float64)
    if not vectors.shape[1]:
        raise CrossmatchError(f"{side} embeddings have shape {vectors.shape}: no dimensions. Store the vectors themselves.")
    return np.ascontiguousarray(vectors)


def _squared_lengths(vectors: NDArray[np.floating], ids: IdArray, side: str) -> FloatArray:
    """|v|² of each row. A NaN or infinity anywhere in a row shows in its square, so one pass checks everything."""
    parts = np.array_split(vectors, max(1, len(vectors) // 128))  # blocks whose products stay in the cache
    with ThreadPoolExecutor() as pool:
        squares = np.concatenate(list(pool.map(_quiet_squares, parts)))
    bad = ~np.isfinite(squares)
    vanished = np.flatnonzero(squares < np.finfo(np.float64).tiny)
    bad[vanished] = vectors[vanished].any(axis=1)
    if bad.any():
        require_finite(vectors, f"{side} embeddings", "Embed again in float32: fp16 overflows above 65,504.")
        first = str(ids[bad.argmax()])
        raise CrossmatchError(f"the embedding of {side} {first!r} is too long or too short to square in float64. Scale it.")
    return squares


def _quiet_squares(part: NDArray[np.floating]) -> FloatArray:
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):  # each thread has its own state
        wide = part.astype(np.float64)
        return np.asarray(np.add.reduce(wide * wide, axis=1), dtype=np.float64)  # each row by itself, in one fixed order


def _inverse_lengths(squares: FloatArray, ids: IdArray, side: str) -> FloatArray:
    if not squares.all():
        raise CrossmatchError(
            f"the embedding of {side} {str(ids[squares.argmin()])!r} is all zeros, which has no cosine. "
            "Embed it again, or store similarity='dot'."
        )
    inverse: FloatArray = 1.0 / np.sqrt(squares)
    frozen(inverse)
    return inverse
