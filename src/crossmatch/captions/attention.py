"""Where a caption is grounded in an image: attention of the image's regions over the caption's words, for many captions at once."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crossmatch.core.arrays import BoolArray, FloatArray, IntArray, as_whole
from crossmatch.core.errors import CrossmatchError
from crossmatch.core.tiles import ROUNDING, blas_threads

SMOOTHING = 9.0  # λ: the default of SCAN's released code (lee2018scan), which jiang2019tiger takes; its text names no value
LEAK = 0.0  # what is left of a negative cosine in eq. 3
RELEASED_LEAK = 0.1  # `clipped_l2norm` of SCAN's released code
BLOCK = 2_000_000  # numbers of region and word vectors in a block: it stays in the cache, and memory does not grow with N
NOTHING = 1e-12  # a cosine or a relative length below is zero: it is what rounding in float64 leaves of zero
DECIMALS = 12  # of a score; scores that are equal by the formula are equal numbers, whichever order they were summed in
CLOSE = 16 * ROUNDING  # a score in float32 was wrong by at most 8 roundings in trials: two this close may have changed places
STEEP, CANCELLED, RANGE = 500.0, 0.01, 1e12  # beyond these float32 may be wrong by more


@dataclass(frozen=True, eq=False)
class _Sides:
    """Checked vectors of all images and captions, and how many of each row's are there."""

    regions: NDArray[np.floating]
    words: NDArray[np.floating]
    image: IntArray  # of each caption
    regions_each: IntArray
    lengths: IntArray
    smoothing: float
    leak: float


def ground(
    regions: ArrayLike,
    words: ArrayLike,
    *,
    image: ArrayLike | None = None,
    regions_each: ArrayLike | None = None,
    lengths: ArrayLike | None = None,
    smoothing: float = SMOOTHING,
    leak: float = LEAK,
    block: int = BLOCK,
) -> FloatArray:
    """How much each caption is grounded in each region of its image: an array (captions, regions) of cosines.

        a_i = Σ_j α_ij w_j,    α_ij = softmax_j(λ sim(v_i, w_j)),    sim(v_i, w_j) = [cos(v_i, w_j)]₊ / √Σ_k [cos(v_k, w_j)]₊²
        s_i = cos(v_i, a_i)

    `regions` is (images, regions, d), `words` (captions, words, d); `regions_each` and `lengths` say how many of each row there
    are; the rest is padding (any value; NaN in the result). Caption n belongs to image n, or to image `image[n]`. λ is `smoothing`.
    [x]₊ is max(0, x) as in the paper; with a `leak` of 0.1 it is max(0.1 x, x) as in the released code.

    Zero: the cosine with a zero vector is 0; sim is 0 where no region has a positive cosine with the word; a caption without words,
    or whose words are zero vectors (as unknown words often are) or cancel out, is grounded nowhere: every s_i is 0. With one region
    sim is 0 or 1.

    Numbers: vectors in float64 are worked on in float64. With others bulk work is in float32, and a caption is done again in
    float64 where rounding could change the order of its regions. |a_i|² = Σ_jk α_ij α_ik w_j·w_k needs no vector a_i.
    Source: jiang2019tiger, eq. 1 to 6; lee2018scan, sec. 3.

    >>> one_hot = np.eye(3)
    >>> ground(one_hot[None, :2], one_hot[None, [0, 0, 2]], smoothing=1.0).round(3)     # "dog dog sky" in a dog and a ball
    array([[0.984, 0.   ]])
    >>> ground(one_hot[None], one_hot[None, :1], lengths=[0], regions_each=[2])     # no words; the third region is padding
    array([[ 0., 0., nan]])
    """
    sides = _sides(regions, words, image, regions_each, lengths, smoothing, leak)
    scores = np.zeros((len(sides.words), sides.regions.shape[1]))
    again = np.flatnonzero(sides.lengths > 0)
    threads = blas_threads()  # one for each of our own: matrices this small are slower on more
    workers = (os.cpu_count() or 1) if threads is not None else 1
    with threads.limit(limits=1) if threads is not None else nullcontext(), ThreadPoolExecutor(workers) as pool:
        if len(again) and np.result_type(sides.regions, sides.words).itemsize <= 4:
            again = _bulk(sides, scores, block, pool)
        pieces = _pieces(again, max(1, block // (4 * (_size(sides.regions) + _size(sides.words)) + 1)))
        for at, found in zip(pieces, pool.map(lambda at: _exact(sides, at), pieces), strict=True):
            scores[at] = found
    scores[np.arange(scores.shape[1]) >= sides.regions_each[sides.image][:, None]] = np.nan
    return scores


def _bulk(sides: _Sides, scores: FloatArray, block: int, pool: Executor) -> IntArray:
    """Fill the scores in float32, blocks side by side; the captions that float32 is not enough for."""
    parts, again = list(_by_image(sides, block)), []
    for (_, slots), (found, doubtful) in zip(parts, pool.map(lambda part: _fast(sides, *part), parts), strict=True):
        member, used = slots.ravel(), slots.ravel() >= 0
        scores[member[used]] = found[used]
        again.append(member[used & doubtful])
    return np.sort(np.concatenate(again))


def _by_image(sides: _Sides, block: int) -> Iterator[tuple[IntArray, IntArray]]:
    """Images and, of each, its captions (-1 where it has fewer than others): the captions of an image share one product."""
    order = np.argsort(sides.image, kind="stable")
    each = np.bincount(sides.image, minlength=len(sides.regions))
    first = np.cumsum(each) - each
    by_count = np.argsort(each, kind="stable")  # so that little is padded
    at = int(np.count_nonzero(each == 0))
    while at < len(by_count):
        size = max(1, block // (_size(sides.regions) + int(each[by_count[at]]) * _size(sides.words)))
        images = by_count[at : at + size]
        place = np.arange(each[images[-1]])
        slots = first[images][:, None] + place
        yield images, np.where(place < each[images][:, None], order[np.minimum(slots, len(order) - 1)], -1)
        at += size


def _fast(sides: _Sides, images: IntArray, slots: IntArray) -> tuple[NDArray[np.float32], BoolArray]:
    """Scores (captions, regions) in float32, and which captions to do again. In between, axes are (captions, words, regions)."""
    there, length = slots.shape[1], sides.words.shape[1]
    member = np.maximum(slots, 0).ravel()
    v = _rows(sides.regions, images).astype(np.float32, copy=False)
    w = _rows(sides.words, member).astype(np.float32, copy=False)
    with np.errstate(all="ignore"):  # what is not finite is done again, and refused there
        product = (v @ w.reshape(len(v), there * length, -1).swapaxes(1, 2)).reshape(len(v), -1, there, length)
        dots = np.ascontiguousarray(product.transpose(0, 2, 3, 1)).reshape(len(w), length, -1)
        gram = w @ w.swapaxes(1, 2)
        is_region = np.repeat(np.arange(v.shape[1]) < sides.regions_each[images][:, None], there, axis=0)
        is_word = np.arange(length) < sides.lengths[member][:, None]
        if not (is_region.all() and is_word.all()):
            dots = np.where(is_word[:, :, None] & is_region[:, None], dots, np.float32(0))
            gram = np.where(is_word[:, :, None] & is_word[:, None], gram, np.float32(0))
        region_sq, word_sq = np.repeat(_squares(v), there, axis=0), np.einsum("nll->nl", gram)
        doubtful = (is_region & _out_of(region_sq, RANGE)).any(axis=1) | (is_word & _out_of(word_sq, RANGE)).any(axis=1)
        dots /= _positive(np.sqrt(region_sq))[:, None]
        word_norm = np.sqrt(word_sq)
        cosine = dots / _positive(word_norm)[:, :, None]
        clipped = _leaky(cosine, sides.leak)
        norm = np.sqrt(_squares(clipped))
        # A word that no region is near to: a quotient of roundings. A word that all regions are far from: a clear zero.
        unclear = is_word & (sides.smoothing > STEEP * norm)
        if unclear.any():
            doubtful |= (unclear & (cosine.max(axis=-1) > -1 / STEEP)).any(axis=1)
        weight = _softmax(clipped * (np.float32(sides.smoothing) / _positive(norm))[:, :, None], is_word)
        length_sq = ((gram @ weight) * weight).sum(axis=1)
        longest = (word_norm[:, None] @ weight)[:, 0] ** 2  # if no words cancelled out
        scores = (weight * dots).sum(axis=1) / np.sqrt(length_sq)
        doubtful |= (is_region & ~(np.isfinite(scores) & (length_sq > CANCELLED * longest))).any(axis=1)
        placed = np.sort(np.where(is_region, scores, np.nan), axis=1)  # padding last
        doubtful |= (placed[:, 1:] - placed[:, :-1] < CLOSE).any(axis=1)
    return np.where(np.isfinite(scores), scores, np.float32(0)), doubtful & is_word.any(axis=1)


def _exact(sides: _Sides, captions: IntArray) -> FloatArray:
    """The equations as they stand, in float64, with lengths that can neither overflow nor underflow."""
    images = sides.image[captions]
    is_region = np.arange(sides.regions.shape[1]) < sides.regions_each[images][:, None]
    is_word = np.arange(sides.words.shape[1]) < sides.lengths[captions][:, None]
    v, region_norm = _unit(sides.regions[images], is_region)
    w, word_norm = _unit(sides.words[captions], is_word)
    for what, norm, of in (("regions of image", region_norm, images), ("words of caption", word_norm, captions)):
        if not np.isfinite(norm).all():
            bad = int(of[(~np.isfinite(norm)).any(axis=1)][0])
            raise CrossmatchError(
                f"the {what} {bad} have vectors with NaN or infinity; finite numbers were expected. Mend the model."
            )
    cosine = w @ v.swapaxes(1, 2)
    cosine[np.abs(cosine) <= NOTHING] = 0.0
    clipped = _leaky(cosine, sides.leak)
    weight = _softmax(sides.smoothing * clipped / _positive(np.sqrt(_squares(clipped)))[:, :, None], is_word)
    weight *= (word_norm / _positive(word_norm.max(axis=1, initial=0.0, keepdims=True)))[:, :, None]  # as long as the words are
    attended = np.sqrt(_squares(weight.swapaxes(1, 2) @ w))
    lasting = attended > NOTHING * weight.sum(axis=1)
    scores = np.where(lasting, (weight * cosine).sum(axis=1) / np.where(lasting, attended, 1.0), 0.0)
    return np.asarray(np.clip(scores, -1.0, 1.0).round(DECIMALS) + 0.0)  # no negative zero


def _unit(vectors: NDArray[np.floating], present: BoolArray) -> tuple[FloatArray, FloatArray]:
    """Unit vectors (zero ones stay zero, padding becomes zero), and the lengths."""
    given = np.where(present[..., None], vectors, 0.0).astype(np.float64, copy=False)
    scale = np.ones(present.shape)
    with np.errstate(all="ignore"):  # infinity over infinity is NaN, and refused
        odd = present & _out_of(_squares(given), 1e200)
        scale[odd] = np.abs(given[odd]).max(axis=-1, initial=0.0)
        given[odd] /= _positive(scale[odd])[:, None]
        norm = np.sqrt(_squares(given))
        given /= _positive(norm)[..., None]
    return given, norm * scale


def _squares(vectors: NDArray[Any]) -> NDArray[Any]:
    """The squared length of each."""
    return np.asarray((vectors[..., None, :] @ vectors[..., None])[..., 0, 0])


def _leaky(cosine: NDArray[Any], leak: float) -> NDArray[Any]:
    return np.asarray(np.maximum(cosine, cosine * cosine.dtype.type(leak)))


def _positive(divisor: NDArray[Any]) -> NDArray[Any]:
    """One where it is zero: nothing over nothing is nothing."""
    return np.where(divisor > 0, divisor, divisor.dtype.type(1))


def _softmax(logits: NDArray[Any], is_word: BoolArray) -> NDArray[Any]:
    """Over the words that are there; zeros where there is none."""
    if not is_word.all():
        logits = np.where(is_word[:, :, None], logits, -np.inf)
    weight = np.exp(logits - logits.max(axis=1, keepdims=True, initial=-np.finfo(logits.dtype).max))
    return np.asarray(weight / _positive(weight.sum(axis=1, keepdims=True)))


def _out_of(squares: NDArray[Any], most: float) -> BoolArray:
    """Zero, close to overflow or underflow, or not a number."""
    return np.asarray(~((squares > 1 / most) & (squares < most)))


def _rows(array: NDArray[np.floating], at: IntArray) -> NDArray[np.floating]:
    """The rows, without a copy where they stand one after the other."""
    first = int(at[0])
    return array[first : first + len(at)] if np.array_equal(at, np.arange(first, first + len(at))) else array[at]


def _size(array: NDArray[np.floating]) -> int:
    """Of one row, in numbers."""
    return int(np.prod(array.shape[1:]))


def _pieces(items: IntArray, size: int) -> list[IntArray]:
    return [items[at : at + size] for at in range(0, len(items), size)]


def _sides(
    regions: ArrayLike,
    words: ArrayLike,
    image: ArrayLike | None,
    regions_each: ArrayLike | None,
    lengths: ArrayLike | None,
    smoothing: float,
    leak: float,
) -> _Sides:
    v, w = np.asarray(regions), np.asarray(words)
    if v.ndim != 3 or w.ndim != 3 or v.shape[2] != w.shape[2] or v.dtype.kind != "f" or w.dtype.kind != "f":
        raise CrossmatchError(
            f"regions of shape {v.shape} ({v.dtype}) and words of shape {w.shape} ({w.dtype}); floats of shape (images, "
            "regions, d) and (captions, words, d) were expected. Pad what is shorter."
        )
    if not (smoothing >= 0 and np.isfinite(smoothing) and 0 <= leak < 1):
        raise CrossmatchError(f"smoothing {smoothing} and leak {leak}; a number from 0, and one from 0 to 1, were expected.")
    owner = np.arange(len(w)) if image is None else as_whole(image, "images of captions")
    if (
        owner.shape != (len(w),)
        or (len(w) and not (owner.min() >= 0 and owner.max() < len(v)))
        or (image is None and len(v) != len(w))
    ):
        raise CrossmatchError(
            f"{len(w):,} captions and {len(v):,} images do not belong together. Give `image`, the position of each caption's image."
        )
    counts = [
        np.full(len(x), x.shape[1]) if each is None else as_whole(each, what)
        for x, each, what in ((v, regions_each, "numbers of regions"), (w, lengths, "numbers of words"))
    ]
    for x, each, what, least in ((v, counts[0], "regions", 1), (w, counts[1], "words", 0)):
        if each.shape != (len(x),) or (len(x) and not (least <= each.min() and each.max() <= x.shape[1])):
            raise CrossmatchError(
                f"the numbers of {what} do not fit an array of shape {x.shape}; {len(x):,} numbers from {least} to {x.shape[1]} "
                "were expected. An image needs a region."
            )
    return _Sides(v, w, owner, counts[0], counts[1], smoothing, leak)
