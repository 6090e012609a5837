"""Scores of trials by a cross encoder, cached like a score matrix.

The images and captions of a trial are presented in a random order (`data.hashed_random_numbers`), because a model may prefer the
first candidate, and benchmarks put the right answer first. A block has a row for each of some trials and a column for each pair
of a trial.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from crossmatch.data.arrays import FloatArray, IdArray, IntArray
from crossmatch.data.errors import CrossmatchError
from crossmatch.data.hashed_random_numbers import draw_presentation_order
from crossmatch.data.io.image_loading import load_image
from crossmatch.data.io.progress import track
from crossmatch.data.trials import Trials
from crossmatch.models.cache.cross_encoder_scores import ScoreBlock, open_score_blocks
from crossmatch.models.cache.store import Cache
from crossmatch.models.distinct_items import collect_items, require_images
from crossmatch.models.model_outputs import as_scores

MAX_EXACT_INTEGER = 1 << 53  # in float64
OPEN_IMAGES = 256  # kept in memory

Orders = tuple[IntArray, IntArray]  # of the images and the captions of each trial
ImageOpener = Callable[[str], Any]


def compute_trial_scores(
    score: Callable[..., ArrayLike],
    trials: Trials,
    *,
    batch: int,
    cache: Cache | None = None,
    system: str | None = None,
    pairs: Callable[..., ArrayLike] | None = None,
) -> FloatArray:
    """Score each caption with each image of every trial; shape (N, C, I).

    Args:
        score: `score(images, texts)`, called once for each trial.
        trials: The trials. Those that share images are scored one after another, so that an image is rarely opened twice.
        batch: Trials per cached block.
        system: Signature of the model; scores of a model without one are not cached.
        pairs: `score_pairs(images, texts)`, which scores image n with text n. If given, it is called instead of `score` for
            all pairs of a block, which large models on a GPU need.

    >>> pets = Trials(["t0"], [["cat", "dog"]], [["A cat."]], [""], open_image=str)
    >>> compute_trial_scores(lambda images, texts: [[float(i in t) for t in texts] for i in images], pets, batch=8)
    array([[[1., 0.]]])
    """
    order = np.argsort(trials.clusters, kind="stable")
    trials = trials.select(order)
    n, (c, i) = len(trials.ids), trials.shape
    if trials.open_image is None:
        raise CrossmatchError(
            "this benchmark has ids and texts but no image files on this machine. Get them (`crossmatch list data` says how), or "
            "use precomputed scores: -m precomputed:FILE"
        )
    opener = lru_cache(maxsize=OPEN_IMAGES)(partial(load_image, trials.open_image))
    items, _ = collect_items([trials])
    require_images(items)
    orders = draw_presentation_order(trials)
    out = np.empty((n, c, i))
    blocks = [ScoreBlock(range(at, min(at + batch, n)), range(c * i)) for at in range(0, n, batch)]
    facts = ("trials", trials.ids.tolist(), trials.images.tolist(), trials.captions.tolist())  # ids determine the presented order
    with open_score_blocks(cache, system, items, batch, len(blocks), *facts) as stored:
        for block in track(blocks, "scoring"):
            scores = stored.get(block) if stored else None
            if scores is None:
                compute, function = (_score_one_by_one, score) if pairs is None else (_score_all_pairs, pairs)
                scores = compute(function, trials, block.images, opener, orders).reshape(block.shape)
                if stored:
                    stored.put(block, scores)
            out[order[block.images.start : block.images.stop]] = scores.reshape(-1, c, i)
    return out


def _score_one_by_one(
    score: Callable[..., ArrayLike], trials: Trials, which: range, opener: ImageOpener, orders: Orders
) -> FloatArray:
    """Score some trials with one call each; shape (trials, C, I)."""
    out = np.empty((len(which), *trials.shape))
    for row, t in enumerate(which):
        image, caption = (order[t] for order in orders)
        values = score([opener(name) for name in trials.images[t][image].tolist()], trials.captions[t][caption].tolist())
        scores = _check_scores(values, trials.shape[::-1], trials.ids[t : t + 1], "score(images, texts)")
        out[row][np.ix_(caption, image)] = scores.T
    return out


def _score_all_pairs(
    pairs: Callable[..., ArrayLike], trials: Trials, which: range, opener: ImageOpener, orders: Orders
) -> FloatArray:
    """Score all pairs of some trials with one call, in the order in which each trial is presented."""
    rows = np.arange(which.start, which.stop)[:, None, None]
    image, caption = np.broadcast_arrays(orders[0][which.start : which.stop, None, :], orders[1][which.start : which.stop, :, None])
    names, texts = trials.images[rows, image], trials.captions[rows, caption]
    values = pairs([opener(name) for name in names.ravel().tolist()], texts.ravel().tolist())
    scores = _check_scores(values, (names.size,), trials.ids[which.start : which.stop], "score_pairs(images, texts)")
    out = np.empty(names.shape)
    out[rows - which.start, caption, image] = scores.reshape(names.shape)
    return out


def _check_scores(values: ArrayLike, shape: tuple[int, ...], ids: IdArray, function: str) -> FloatArray:
    """Return scores of some trials in float64; NaN, infinity and integers beyond 2^53 are errors."""
    try:
        scores = as_scores(values, shape, function)
    except CrossmatchError as error:
        raise CrossmatchError(f"trial {str(ids[0])!r}: {error}") from None
    if scores.dtype.kind in "iu" and scores.size and int(np.abs(scores.astype(object)).max()) > MAX_EXACT_INTEGER:
        raise CrossmatchError(
            f"{function} returned an integer beyond 2^53 for trial {str(ids[0])!r} or a later one. Return floating-point numbers."
        )
    with np.errstate(over="ignore"):  # a long double may become infinite, which is an error below
        scores = scores.astype("<f8")
    is_bad = ~np.isfinite(scores.reshape(len(ids), -1)).all(axis=1)
    if is_bad.any():
        raise CrossmatchError(
            f"{function} returned NaN or infinity for trial {str(ids[is_bad.argmax()])!r}, and its block is not cached. Look for a "
            "division by zero or an overflow in the model."
        )
    return scores
