"""The scores of a model: embeddings, a full matrix, or a run.

All three give the score of image i with caption j. For embeddings it is

    s(i, j) = Σ_k u_ik · v_jk / (|u_i| · |v_j|)        (cosine; without the norms for "dot")

summed in float64 in a fixed order (`exact_dot`), so that a pair has the same score in any block, thread, batch and order.

"Exact" means equal to this float64 definition. Two cosines that are equal as real numbers may differ in the last bit: those of a
vector and 1.1 times that vector, for example. They tie for equal vectors, for multiples by a power of two, and for whole-number
multiples of a vector of whole numbers, such as 0/1 vectors: its cosines are computed after division by the greatest common divisor.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crossmatch.data.arrays import (
    BoolArray,
    FloatArray,
    IdArray,
    IntArray,
    as_ids,
    find_positions,
    make_read_only,
    require_finite,
)
from crossmatch.data.collection import SIDES, Collection
from crossmatch.data.errors import CrossmatchError

Number = np.floating | np.integer | np.bool_
MAX_WHOLE = 2.0**53  # float64 distinguishes all whole numbers up to here
FIRST_COLUMNS = 16  # enough to see that a row has a fraction, or no common divisor


def exact_dot(a: NDArray[np.floating], b: NDArray[np.floating]) -> FloatArray:
    """Row-wise dot products in float64, summed by folding the products in half until one number is left.

    The order of the additions is part of the definition. The compiled loops fold in the same way, so both agree to the last bit.

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
    """One vector per image and per caption.

    Attributes:
        image_ids: The ids of the images, or None.
        image_vectors: The vectors of the images, or None if the model embeds only texts. With the cosine, vectors of whole numbers
            are stored divided by their greatest common divisor.
        caption_ids: The ids of the captions, or None.
        caption_vectors: The vectors of the captions, or None if the model embeds only images.
        similarity: "cosine" or "dot".
        image_scale: Derived: 1 / |u| of each image, or ones for the dot product.
        caption_scale: Derived: 1 / |v| of each caption, or ones for the dot product.

    >>> import numpy as np
    >>> embeddings = Embeddings(["i"], [[3.0, 4.0]], ["a", "b"], [[3.0, 4.0], [0.0, 1.0]])
    >>> embeddings.score_pairs(np.array([0, 0]), np.array([0, 1]))
    array([1. , 0.8])
    >>> embeddings.score_pairs(np.array([0]), np.array([1]), "t2t")
    array([0.8])
    >>> Embeddings(["i"], [[3, 3]], None, None).image_vectors
    array([[1., 1.]])
    """

    image_ids: IdArray | None
    image_vectors: NDArray[np.floating] | None
    caption_ids: IdArray | None
    caption_vectors: NDArray[np.floating] | None
    similarity: str = "cosine"
    image_scale: FloatArray | None = None
    caption_scale: FloatArray | None = None

    def __post_init__(self) -> None:
        if self.similarity not in ("cosine", "dot"):
            raise CrossmatchError(f"Unknown similarity {self.similarity!r}. Use 'cosine' or 'dot'.")
        if self.image_vectors is None and self.caption_vectors is None:
            raise CrossmatchError("There are neither image nor caption embeddings. Give at least one of the two.")
        for side in ("image", "caption"):
            if getattr(self, f"{side}_vectors") is None:
                object.__setattr__(self, f"{side}_ids", None)
                continue
            ids = as_ids(getattr(self, f"{side}_ids"), side)
            vectors = _as_vectors(getattr(self, f"{side}_vectors"), ids, side)
            if self.similarity == "cosine":
                vectors = _divide_by_common_divisors(vectors)
            squares = _squared_lengths(vectors, ids, side)
            scale = _inverse_lengths(squares, ids, side) if self.similarity == "cosine" else np.ones(len(ids))
            object.__setattr__(self, f"{side}_ids", ids)
            object.__setattr__(self, f"{side}_vectors", vectors)
            object.__setattr__(self, f"{side}_scale", scale)
        widths = {side: self.vectors(side).shape[1] for side in ("image", "caption") if self.has(side)}
        if len(set(widths.values())) > 1:
            raise CrossmatchError(
                f"Image embeddings have {widths['image']} dimensions and caption embeddings {widths['caption']}, but both must be "
                "in one space. Check that they come from the same model."
            )

    def has(self, side: str) -> bool:
        """Whether there are vectors of this side, "image" or "caption"."""
        return getattr(self, f"{side}_vectors") is not None

    def vectors(self, side: str) -> NDArray[np.floating]:
        """The vectors of one side."""
        vectors: NDArray[np.floating] | None = getattr(self, f"{side}_vectors")
        assert vectors is not None
        return vectors

    def scale(self, side: str) -> FloatArray:
        """The factor of each vector of one side: 1 / length, or 1 for the dot product."""
        scale: FloatArray | None = getattr(self, f"{side}_scale")
        assert scale is not None
        return scale

    @property
    def shape(self) -> tuple[int, int]:
        """Number of images and captions; 0 for a side without vectors."""
        n, m = (len(self.vectors(side)) if self.has(side) else 0 for side in ("image", "caption"))
        return n, m

    @property
    def dimensions(self) -> int:
        return int(self.vectors("image" if self.has("image") else "caption").shape[1])

    @property
    def directions(self) -> tuple[str, ...]:
        """The directions in which these embeddings can be ranked."""
        return tuple(direction for direction, sides in SIDES.items() if all(map(self.has, sides)))

    def score_pairs(self, query: IntArray, item: IntArray, direction: str = "i2t") -> FloatArray:
        """The exact score of each query with its item."""
        (a, a_scale), (b, b_scale) = ((self.vectors(side), self.scale(side)) for side in SIDES[direction])
        scores = np.empty(len(query))
        step = max(1, (1 << 22) // a.shape[1])  # blocks keep memory small
        for start in range(0, len(query), step):
            block = slice(start, start + step)
            i, j = query[block], item[block]
            scores[block] = exact_dot(a[i], b[j]) * (a_scale[i] * b_scale[j])
        return scores

    def reorder(self, order: Mapping[str, IntArray]) -> Embeddings:
        """The same embeddings with the items of some sides in another order, or fewer of them."""
        reordered = copy.copy(self)  # the vectors were checked already
        for side, positions in order.items():
            for field in ("ids", "vectors", "scale"):
                object.__setattr__(reordered, f"{side}_{field}", getattr(self, f"{side}_{field}")[positions])
        return reordered

    def align_to(self, collection: Collection, partial: bool = False) -> Embeddings:
        """The embeddings in the order of the collection.

        Args:
            collection: The collection.
            partial: Whether there may be embeddings of other items, too.

        Raises:
            CrossmatchError: An item has no embedding, or there is an embedding of another item.
        """
        sides = [side for side in ("image", "caption") if self.has(side)]
        return self.reorder({side: _align(collection.ids(side), getattr(self, f"{side}_ids"), side, partial) for side in sides})


@dataclass(frozen=True, eq=False)
class Matrix:
    """A score for every image (row) and caption (column), in any real dtype.

    Attributes:
        image_ids: The image id of each row.
        caption_ids: The caption id of each column.
        values: The scores; higher is more similar.

    >>> import numpy as np
    >>> Matrix(["i"], ["a", "b"], [[0.25, 0.5]]).score_pairs(np.array([0]), np.array([1]))
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
                f"Scores have shape {values.shape}, expected {self.shape} (images x captions). Transpose them, or check the ids."
            )
        if not np.issubdtype(values.dtype, np.floating) and not np.issubdtype(values.dtype, np.integer) and values.dtype != bool:
            raise CrossmatchError(f"Scores have dtype {values.dtype}, expected real numbers.")
        if values.dtype.kind in "iu" and values.size and max(abs(int(values.min())), abs(int(values.max()))) > 2**53:
            raise CrossmatchError(
                "Scores contain whole numbers beyond 2^53, which float64 cannot distinguish. Scale them, or use their ranks."
            )
        if np.issubdtype(values.dtype, np.floating):
            for start in range(0, len(values), 256):
                block = np.asarray(values[start : start + 256], np.float64)
                require_finite(block, "scores", "Look for a division by zero or an overflow in the model.")

    @property
    def shape(self) -> tuple[int, int]:
        """Number of images and captions."""
        return len(self.image_ids), len(self.caption_ids)

    @property
    def directions(self) -> tuple[str, ...]:
        return "i2t", "t2i"

    def score_pairs(self, query: IntArray, item: IntArray, direction: str = "i2t") -> FloatArray:
        """The score of each query with its item."""
        return (self.values[query, item] if direction == "i2t" else self.values[item, query]).astype(np.float64)

    def align_to(self, collection: Collection, partial: bool = False) -> Matrix:
        """The matrix in the order of the collection; see `Embeddings.align_to`."""
        i = _align(collection.image_ids, self.image_ids, "image", partial)
        j = _align(collection.caption_ids, self.caption_ids, "caption", partial)
        is_aligned = np.array_equal(i, np.arange(len(i))) and np.array_equal(j, np.arange(len(j)))
        values = self.values if is_aligned and self.values.shape == collection.shape else self.values[np.ix_(i, j)]
        return Matrix(collection.image_ids, collection.caption_ids, values)


@dataclass(frozen=True, eq=False)
class Run:
    """The top of each query's ranking, as in a TREC run file. Candidates that are not listed rank below all listed ones.

    Rankings of several directions may be mixed. The score gives the order, equal scores are ties, and the rank column is not used
    (as in trec_eval).

    Attributes:
        queries: The query id of each row.
        items: The item id of each row.
        values: The score of each row.
        tag: The name of the run.
        direction_marks: The second column, if it contains directions.

    >>> import numpy as np
    >>> from crossmatch import Collection
    >>> pets = Collection.from_captions({"cat": ["A cat."], "dog": ["A dog."]})
    >>> run = Run(np.array(["cat", "cat"]), np.array(["dog#0", "cat#0"]), np.array([0.9, 0.4]))
    >>> run.pairs_in_direction(pets, "i2t")                 # positions of queries and items, and the scores
    (array([0, 0]), array([1, 0]), array([0.9, 0.4]))
    """

    queries: IdArray
    items: IdArray
    values: FloatArray
    tag: str = "run"
    direction_marks: IdArray | None = None

    def __post_init__(self) -> None:
        if not len(self.queries) == len(self.items) == len(self.values):
            raise CrossmatchError("A run needs one query, one item and one score per row.")
        require_finite(self.values, "scores of the run", "Every row needs a finite score.")

    def is_in_direction(self, collection: Collection, direction: str) -> BoolArray:
        """For each row whether it is of this direction, by its mark or else by its ids."""
        queries, items = (collection.ids(side) for side in SIDES[direction])
        is_member = np.isin(self.queries, queries) & np.isin(self.items, items)
        if self.direction_marks is not None:
            is_member &= (self.direction_marks == direction) | ~np.isin(self.direction_marks, list(SIDES))
        return np.asarray(is_member, dtype=bool)

    def pairs_in_direction(self, collection: Collection, direction: str) -> tuple[IntArray, IntArray, FloatArray]:
        """Query positions, item positions and scores of the rows of one direction."""
        rows = self.is_in_direction(collection, direction)
        query_ids, item_ids = (collection.ids(side) for side in SIDES[direction])
        query = find_positions(self.queries[rows], query_ids, "query", "the collection") if rows.any() else np.zeros(0, np.int64)
        item = find_positions(self.items[rows], item_ids, "item", "the collection") if rows.any() else np.zeros(0, np.int64)
        pair = np.sort(query * len(item_ids) + item)
        if (pair[1:] == pair[:-1]).any():
            q, c = divmod(int(pair[1:][pair[1:] == pair[:-1]][0]), len(item_ids))
            raise CrossmatchError(
                f"The run lists item {str(item_ids[c])!r} twice for query {str(query_ids[q])!r}. Keep one of the rows."
            )
        return query, item, self.values[rows]

    def align_to(self, collection: Collection, partial: bool = False) -> Run:
        """Check that every row is about the collection.

        Args:
            collection: The collection.
            partial: Whether to drop rows about other items instead.
        """
        directions = np.stack([self.is_in_direction(collection, direction) for direction in SIDES])
        is_ambiguous = directions.sum(axis=0) > 1
        if is_ambiguous.any():
            raise CrossmatchError(
                f"Row {int(is_ambiguous.argmax()) + 1} of the run can be read in two directions, because an image and a caption "
                "have the same id. Write i2t, t2i, t2t or i2i into the second column."
            )
        is_member = directions.any(axis=0)
        if partial:
            marks = None if self.direction_marks is None else self.direction_marks[is_member]
            return Run(self.queries[is_member], self.items[is_member], self.values[is_member], self.tag, marks)
        if not is_member.all():
            row = int((~is_member).argmax())
            raise CrossmatchError(
                f"Row {row + 1} of the run pairs {str(self.queries[row])!r} with {str(self.items[row])!r}, but these are not two "
                f"items of the collection (image ids look like {str(collection.image_ids[0])!r}, caption ids like "
                f"{str(collection.caption_ids[0])!r}). Check the split."
            )
        return self


Scores = Embeddings | Matrix | Run


def _align(expected: IdArray, ids: IdArray, kind: str, partial: bool = False) -> IntArray:
    """The positions of the expected ids; all must be there, and (unless `partial`) no others."""
    if len(expected) == len(ids) and (expected == ids).all():
        return np.arange(len(expected))
    is_missing = ~np.isin(expected, ids)
    is_unknown = ~np.isin(ids, expected)
    if is_missing.any():
        hint = f"; its first id is {str(ids[0])!r}" if is_unknown.any() else ""
        raise CrossmatchError(
            f"Only {(~is_missing).sum():,} of the {len(expected):,} {kind} ids of the benchmark are there{hint}; first missing: "
            f"{str(expected[is_missing.argmax()])!r}. Add the missing ones, or check the split."
        )
    if is_unknown.any() and not partial:
        raise CrossmatchError(
            f"{is_unknown.sum():,} {kind} ids are not in the benchmark; first unknown: {str(ids[is_unknown.argmax()])!r}. "
            "Leave them out: they would change every rank."
        )
    return find_positions(expected, ids, kind, "the scores")


def _as_vectors(values: ArrayLike, ids: IdArray, side: str) -> NDArray[np.floating]:
    vectors = np.asarray(values)
    if vectors.ndim != 2 or len(vectors) != len(ids):
        raise CrossmatchError(f"{side} embeddings have shape {vectors.shape}, expected ({len(ids):,}, dimensions): one row per id.")
    if not np.issubdtype(vectors.dtype, np.floating):
        if not np.issubdtype(vectors.dtype, np.integer):
            raise CrossmatchError(f"{side} embeddings have dtype {vectors.dtype}, expected real numbers.")
        vectors = vectors.astype(np.float64)
    if vectors.dtype not in (np.float32, np.float64):
        vectors = vectors.astype(np.float32 if vectors.dtype.itemsize < 4 else np.float64)
    if not vectors.shape[1]:
        raise CrossmatchError(f"{side} embeddings have shape {vectors.shape}: no dimensions. Store the vectors themselves.")
    return np.ascontiguousarray(vectors)


def _divide_by_common_divisors(vectors: NDArray[np.floating]) -> NDArray[np.floating]:
    """Divide rows of whole numbers by their greatest common divisor. The quotients have no rounding; other rows stay as they are."""
    rows, divisors = np.arange(len(vectors)), np.zeros(len(vectors), dtype=np.int64)
    start, stop = 0, FIRST_COLUMNS
    while start < vectors.shape[1] and len(rows):
        values = vectors[rows, start:stop]
        is_whole = ((values == np.floor(values)) & (np.abs(values) <= MAX_WHOLE)).all(axis=1)
        rows = rows[is_whole]
        divisors = np.gcd(divisors[is_whole], np.gcd.reduce(values[is_whole].astype(np.int64), axis=1))
        rows, divisors = rows[divisors != 1], divisors[divisors != 1]
        start, stop = stop, 2 * stop
    if not divisors.any():
        return vectors
    divided = vectors.copy()
    divided[rows] /= np.maximum(divisors, 1)[:, None]  # a row of zeros has the divisor 0
    return divided


def _squared_lengths(vectors: NDArray[np.floating], ids: IdArray, side: str) -> FloatArray:
    """|v|² of each row. A NaN or infinity anywhere in a row shows in its square, so one pass checks everything."""
    blocks = np.array_split(vectors, max(1, len(vectors) // 128))  # their products fit into the cache
    with ThreadPoolExecutor() as pool:
        squares = np.concatenate(list(pool.map(_square_rows, blocks)))
    is_bad = ~np.isfinite(squares)
    vanished = np.flatnonzero(squares < np.finfo(np.float64).tiny)
    is_bad[vanished] = vectors[vanished].any(axis=1)
    if is_bad.any():
        require_finite(vectors, f"{side} embeddings", "Embed again in float32: fp16 overflows above 65,504.")
        first = str(ids[is_bad.argmax()])
        raise CrossmatchError(f"The embedding of {side} {first!r} is too long or too short to square in float64. Scale it.")
    return squares


def _square_rows(block: NDArray[np.floating]) -> FloatArray:
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):  # each thread has its own error state
        wide = block.astype(np.float64)
        return np.asarray(np.add.reduce(wide * wide, axis=1), dtype=np.float64)  # row by row, in a fixed order


def _inverse_lengths(squares: FloatArray, ids: IdArray, side: str) -> FloatArray:
    if not squares.all():
        raise CrossmatchError(
            f"The embedding of {side} {str(ids[squares.argmin()])!r} is all zeros, so it has no cosine. "
            "Embed it again, or store similarity='dot'."
        )
    inverse: FloatArray = 1.0 / np.sqrt(squares)
    make_read_only(inverse)
    return inverse
