"""Ground captions in image regions: attention of the regions over the words, for many captions at once."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crossmatch.data.arrays import BoolArray, FloatArray, IntArray, as_integers
from crossmatch.data.errors import CrossmatchError
from crossmatch.ranking.tiles import FLOAT32_ROUNDOFF, blas_thread_controller

SMOOTHING = 9.0  # λ: the default of SCAN's released code (lee2018scan), which jiang2019tiger uses; the paper gives no value
LEAK = 0.0  # factor of a negative cosine in eq. 3
RELEASED_LEAK = 0.1  # `clipped_l2norm` of SCAN's released code
BLOCK = 2_000_000  # numbers in the vectors of a block: fits into the cache, and memory does not grow with N
NEAR_ZERO = 1e-12  # a smaller cosine or relative length is a rounding error of float64
DECIMALS = 12  # of a score, so that scores that are equal by the formula are equal numbers in any order of summation
MIN_GAP = 16 * FLOAT32_ROUNDOFF  # errors of float32 scores were at most 8 roundings in tests, so scores this close may be swapped
MAX_STEEPNESS, MIN_LENGTH_RATIO, MAX_RANGE = 500.0, 0.01, 1e12  # beyond these limits float32 may have larger errors


@dataclass(frozen=True, eq=False)
class _Inputs:
    """Checked vectors of all images and captions, and the number of vectors in each row."""

    regions: NDArray[np.floating]
    words: NDArray[np.floating]
    image: IntArray  # of each caption
    regions_per_image: IntArray  # number of regions of each image
    lengths: IntArray  # number of words of each caption
    smoothing: float
    leak: float


def ground_captions(
    regions: ArrayLike,
    words: ArrayLike,
    *,
    image: ArrayLike | None = None,
    regions_per_image: ArrayLike | None = None,
    lengths: ArrayLike | None = None,
    smoothing: float = SMOOTHING,
    leak: float = LEAK,
    block: int = BLOCK,
) -> FloatArray:
    """Ground each caption in the regions of its image.

        a_i = Σ_j α_ij w_j,    α_ij = softmax_j(λ sim(v_i, w_j)),    sim(v_i, w_j) = [cos(v_i, w_j)]₊ / √Σ_k [cos(v_k, w_j)]₊²
        s_i = cos(v_i, a_i)

    [x]₊ is max(0, x) as in the paper; with a `leak` of 0.1 it is max(0.1 x, x) as in the released code.

    Zero: the cosine with a zero vector is 0, and sim is 0 if no region has a positive cosine with the word. If a caption has no
    words, or its words are zero vectors or cancel out, every s_i is 0. With one region sim is 0 or 1.

    Numerics: float64 vectors are processed in float64. Otherwise bulk work is in float32, and a caption is repeated in float64 if
    rounding could change the order of its regions. |a_i|² = Σ_jk α_ij α_ik w_j·w_k needs no vector a_i.

    Args:
        regions: Region vectors v, shape (images, regions, d); rows may end with padding of any value.
        words: Word vectors w, shape (captions, words, d); rows may end with padding of any value.
        image: The image of each caption; by default caption n belongs to image n.
        regions_per_image: The number of regions of each image; by default all.
        lengths: The number of words of each caption; by default all.
        smoothing: λ.
        leak: Factor of negative cosines.
        block: Numbers in the vectors of a block.

    Returns:
        The cosines s_i, shape (captions, regions); NaN for padding.

    Source: jiang2019tiger, eq. 1 to 6; lee2018scan, sec. 3.

    >>> one_hot = np.eye(3)
    >>> ground_captions(one_hot[None, :2], one_hot[None, [0, 0, 2]], smoothing=1.0).round(3)  # "dog dog sky" with dog and ball
    array([[0.984, 0.   ]])
    >>> ground_captions(one_hot[None], one_hot[None, :1], lengths=[0], regions_per_image=[2])  # no words; one region is padding
    array([[ 0., 0., nan]])
    """
    inputs = _check_inputs(regions, words, image, regions_per_image, lengths, smoothing, leak)
    scores = np.zeros((len(inputs.words), inputs.regions.shape[1]))
    to_repeat = np.flatnonzero(inputs.lengths > 0)
    threads = blas_thread_controller()  # one BLAS thread per worker: more are slower for small matrices
    workers = (os.cpu_count() or 1) if threads is not None else 1
    with threads.limit(limits=1) if threads is not None else nullcontext(), ThreadPoolExecutor(workers) as pool:
        if len(to_repeat) and np.result_type(inputs.regions, inputs.words).itemsize <= 4:
            to_repeat = _ground_fast(inputs, scores, block, pool)
        chunks = _chunks(to_repeat, max(1, block // (4 * (_row_size(inputs.regions) + _row_size(inputs.words)) + 1)))
        for chunk, exact in zip(chunks, pool.map(lambda chunk: _ground_exactly(inputs, chunk), chunks), strict=True):
            scores[chunk] = exact
    scores[np.arange(scores.shape[1]) >= inputs.regions_per_image[inputs.image][:, None]] = np.nan
    return scores


def _ground_fast(inputs: _Inputs, scores: FloatArray, block: int, pool: Executor) -> IntArray:
    """Compute the scores in float32, blocks in parallel. Returns the captions that need float64."""
    blocks, to_repeat = list(_blocks(inputs, block)), []
    results = pool.map(lambda part: _ground_block(inputs, *part), blocks)
    for (_, slots), (block_scores, is_uncertain) in zip(blocks, results, strict=True):
        member, used = slots.ravel(), slots.ravel() >= 0
        scores[member[used]] = block_scores[used]
        to_repeat.append(member[used & is_uncertain])
    return np.sort(np.concatenate(to_repeat))


def _blocks(inputs: _Inputs, block: int) -> Iterator[tuple[IntArray, IntArray]]:
    """Blocks of images with the captions of each, padded with -1; the captions of an image share one matrix product."""
    order = np.argsort(inputs.image, kind="stable")
    caption_counts = np.bincount(inputs.image, minlength=len(inputs.regions))
    first = np.cumsum(caption_counts) - caption_counts
    by_count = np.argsort(caption_counts, kind="stable")  # so that little is padded
    at = int(np.count_nonzero(caption_counts == 0))
    while at < len(by_count):
        size = max(1, block // (_row_size(inputs.regions) + int(caption_counts[by_count[at]]) * _row_size(inputs.words)))
        images = by_count[at : at + size]
        place = np.arange(caption_counts[images[-1]])
        slots = first[images][:, None] + place
        yield images, np.where(place < caption_counts[images][:, None], order[np.minimum(slots, len(order) - 1)], -1)
        at += size


def _ground_block(inputs: _Inputs, images: IntArray, slots: IntArray) -> tuple[NDArray[np.float32], BoolArray]:
    """Scores (captions, regions) in float32, and which captions need float64. Intermediate axes: (captions, words, regions)."""
    slots_per_image, length = slots.shape[1], inputs.words.shape[1]
    member = np.maximum(slots, 0).ravel()
    v = _select_rows(inputs.regions, images).astype(np.float32, copy=False)
    w = _select_rows(inputs.words, member).astype(np.float32, copy=False)
    with np.errstate(all="ignore"):  # non-finite values are repeated in float64, where they raise an error
        product = (v @ w.reshape(len(v), slots_per_image * length, -1).swapaxes(1, 2)).reshape(len(v), -1, slots_per_image, length)
        dots = np.ascontiguousarray(product.transpose(0, 2, 3, 1)).reshape(len(w), length, -1)
        gram = w @ w.swapaxes(1, 2)
        is_region = np.repeat(np.arange(v.shape[1]) < inputs.regions_per_image[images][:, None], slots_per_image, axis=0)
        is_word = np.arange(length) < inputs.lengths[member][:, None]
        if not (is_region.all() and is_word.all()):
            dots = np.where(is_word[:, :, None] & is_region[:, None], dots, np.float32(0))
            gram = np.where(is_word[:, :, None] & is_word[:, None], gram, np.float32(0))
        region_sq, word_sq = np.repeat(_squared_norms(v), slots_per_image, axis=0), np.einsum("nll->nl", gram)
        is_uncertain = (is_region & _is_out_of_range(region_sq, MAX_RANGE)).any(axis=1) | (
            is_word & _is_out_of_range(word_sq, MAX_RANGE)
        ).any(axis=1)
        dots /= _one_if_zero(np.sqrt(region_sq))[:, None]
        word_norm = np.sqrt(word_sq)
        cosine = dots / _one_if_zero(word_norm)[:, :, None]
        clipped = _leaky(cosine, inputs.leak)
        norm = np.sqrt(_squared_norms(clipped))
        # A word without a similar region gives a quotient of rounding errors; one dissimilar to all regions gives a clear zero.
        unclear = is_word & (inputs.smoothing > MAX_STEEPNESS * norm)
        if unclear.any():
            is_uncertain |= (unclear & (cosine.max(axis=-1) > -1 / MAX_STEEPNESS)).any(axis=1)
        weight = _softmax(clipped * (np.float32(inputs.smoothing) / _one_if_zero(norm))[:, :, None], is_word)
        length_sq = ((gram @ weight) * weight).sum(axis=1)
        longest = (word_norm[:, None] @ weight)[:, 0] ** 2  # the length if no words cancelled
        scores = (weight * dots).sum(axis=1) / np.sqrt(length_sq)
        is_uncertain |= (is_region & ~(np.isfinite(scores) & (length_sq > MIN_LENGTH_RATIO * longest))).any(axis=1)
        placed = np.sort(np.where(is_region, scores, np.nan), axis=1)  # NaN, the padding, comes last
        is_uncertain |= (placed[:, 1:] - placed[:, :-1] < MIN_GAP).any(axis=1)
    return np.where(np.isfinite(scores), scores, np.float32(0)), is_uncertain & is_word.any(axis=1)


def _ground_exactly(inputs: _Inputs, captions: IntArray) -> FloatArray:
    """The equations in float64, with norms that can neither overflow nor underflow."""
    images = inputs.image[captions]
    is_region = np.arange(inputs.regions.shape[1]) < inputs.regions_per_image[images][:, None]
    is_word = np.arange(inputs.words.shape[1]) < inputs.lengths[captions][:, None]
    v, region_norm = _unit(inputs.regions[images], is_region)
    w, word_norm = _unit(inputs.words[captions], is_word)
    for name, norm, owner in (("regions of image", region_norm, images), ("words of caption", word_norm, captions)):
        if not np.isfinite(norm).all():
            bad = int(owner[(~np.isfinite(norm)).any(axis=1)][0])
            raise CrossmatchError(f"The {name} {bad} have vectors with NaN or infinity. Correct the model.")
    cosine = w @ v.swapaxes(1, 2)
    cosine[np.abs(cosine) <= NEAR_ZERO] = 0.0
    clipped = _leaky(cosine, inputs.leak)
    weight = _softmax(inputs.smoothing * clipped / _one_if_zero(np.sqrt(_squared_norms(clipped)))[:, :, None], is_word)
    weight *= (word_norm / _one_if_zero(word_norm.max(axis=1, initial=0.0, keepdims=True)))[
        :, :, None
    ]  # weighted by the norm of the words
    attended = np.sqrt(_squared_norms(weight.swapaxes(1, 2) @ w))
    has_length = attended > NEAR_ZERO * weight.sum(axis=1)
    scores = np.where(has_length, (weight * cosine).sum(axis=1) / np.where(has_length, attended, 1.0), 0.0)
    return np.asarray(np.clip(scores, -1.0, 1.0).round(DECIMALS) + 0.0)  # no negative zero


def _unit(vectors: NDArray[np.floating], present: BoolArray) -> tuple[FloatArray, FloatArray]:
    """Unit vectors, and their norms. Zero vectors stay zero, and padding becomes zero."""
    scaled = np.where(present[..., None], vectors, 0.0).astype(np.float64, copy=False)
    scale = np.ones(present.shape)
    with np.errstate(all="ignore"):  # infinity over infinity is NaN and raises an error later
        odd = present & _is_out_of_range(_squared_norms(scaled), 1e200)
        scale[odd] = np.abs(scaled[odd]).max(axis=-1, initial=0.0)
        scaled[odd] /= _one_if_zero(scale[odd])[:, None]
        norm = np.sqrt(_squared_norms(scaled))
        scaled /= _one_if_zero(norm)[..., None]
    return scaled, norm * scale


def _squared_norms(vectors: NDArray[Any]) -> NDArray[Any]:
    """The squared norm of each vector."""
    return np.asarray((vectors[..., None, :] @ vectors[..., None])[..., 0, 0])


def _leaky(cosine: NDArray[Any], leak: float) -> NDArray[Any]:
    return np.asarray(np.maximum(cosine, cosine * cosine.dtype.type(leak)))


def _one_if_zero(divisor: NDArray[Any]) -> NDArray[Any]:
    """The divisor, with zeros replaced by one, so that 0 / 0 gives 0."""
    return np.where(divisor > 0, divisor, divisor.dtype.type(1))


def _softmax(logits: NDArray[Any], is_word: BoolArray) -> NDArray[Any]:
    """Softmax over the words; zeros for a caption without words."""
    if not is_word.all():
        logits = np.where(is_word[:, :, None], logits, -np.inf)
    weight = np.exp(logits - logits.max(axis=1, keepdims=True, initial=-np.finfo(logits.dtype).max))
    return np.asarray(weight / _one_if_zero(weight.sum(axis=1, keepdims=True)))


def _is_out_of_range(squares: NDArray[Any], limit: float) -> BoolArray:
    """Whether a value is zero, close to overflow or underflow, or NaN."""
    return np.asarray(~((squares > 1 / limit) & (squares < limit)))


def _select_rows(array: NDArray[np.floating], at: IntArray) -> NDArray[np.floating]:
    """The rows at some positions, without a copy if they are adjacent."""
    first = int(at[0])
    return array[first : first + len(at)] if np.array_equal(at, np.arange(first, first + len(at))) else array[at]


def _row_size(array: NDArray[np.floating]) -> int:
    """The number of values in one row."""
    return int(np.prod(array.shape[1:]))


def _chunks(items: IntArray, size: int) -> list[IntArray]:
    return [items[at : at + size] for at in range(0, len(items), size)]


def _check_inputs(
    regions: ArrayLike,
    words: ArrayLike,
    image: ArrayLike | None,
    regions_per_image: ArrayLike | None,
    lengths: ArrayLike | None,
    smoothing: float,
    leak: float,
) -> _Inputs:
    v, w = np.asarray(regions), np.asarray(words)
    if v.ndim != 3 or w.ndim != 3 or v.shape[2] != w.shape[2] or v.dtype.kind != "f" or w.dtype.kind != "f":
        raise CrossmatchError(
            "Expected float arrays of shape (images, regions, d) and (captions, words, d), "
            f"got {v.shape} ({v.dtype}) and {w.shape} ({w.dtype}). Pad shorter rows."
        )
    if not (smoothing >= 0 and np.isfinite(smoothing) and 0 <= leak < 1):
        raise CrossmatchError(f"smoothing must be at least 0 and leak from 0 to 1, got {smoothing} and {leak}.")
    owner = np.arange(len(w)) if image is None else as_integers(image, "images of captions")
    if (
        owner.shape != (len(w),)
        or (len(w) and not (owner.min() >= 0 and owner.max() < len(v)))
        or (image is None and len(v) != len(w))
    ):
        raise CrossmatchError(
            f"Cannot assign {len(w):,} captions to {len(v):,} images. Pass `image`, the position of each caption's image."
        )
    counts = [
        np.full(len(x), x.shape[1]) if sizes is None else as_integers(sizes, name)
        for x, sizes, name in ((v, regions_per_image, "numbers of regions"), (w, lengths, "numbers of words"))
    ]
    for x, sizes, name, smallest in ((v, counts[0], "regions", 1), (w, counts[1], "words", 0)):
        if sizes.shape != (len(x),) or (len(x) and not (smallest <= sizes.min() and sizes.max() <= x.shape[1])):
            raise CrossmatchError(
                f"Expected {len(x):,} numbers of {name} from {smallest} to {x.shape[1]} for an array of shape {x.shape}."
            )
    return _Inputs(v, w, owner, counts[0], counts[1], smoothing, leak)
