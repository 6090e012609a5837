"""Scores of trials by a model that looks at images and texts together: trial by trial, kept on disk like a matrix (`cache`).

A trial is shown in a random order (`presented`), because a model may prefer what it sees first, and benchmarks put the right answer
first. A kept block has a row for each of some trials and a column for each pair of a trial.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from crossmatch.core.arrays import FloatArray, IdArray, IntArray
from crossmatch.core.collection import Collection
from crossmatch.core.errors import CrossmatchError
from crossmatch.core.pictures import opened as opened_picture
from crossmatch.core.presented import presented
from crossmatch.core.progress import track
from crossmatch.core.trials import Trials
from crossmatch.models.cache import ScoreCache, as_array, kept_scores, require_pictures
from crossmatch.models.shelf import Block

EXACT = 1 << 53  # whole numbers up to here are told apart
PICTURES = 256  # open at a time


def cached_trials(
    score: Callable[..., ArrayLike],
    trials: Trials,
    *,
    batch: int,
    cache: ScoreCache | None = None,
    system: str | None = None,
    pairs: Callable[..., ArrayLike] | None = None,
) -> FloatArray:
    """The score of each caption with each image of every trial, shape (N, C, I).

    `score(images, texts)` is asked once for each trial. Where `pairs` is given, `pairs(images, texts)` is asked instead for many
    pairs at once, image n with text n, which is what a large model on a GPU needs. Trials that share images are asked one after the
    other, so that a picture is rarely opened twice.

    >>> pets = Trials(["t0"], [["cat", "dog"]], [["A cat."]], [""], open_image=str)
    >>> cached_trials(lambda images, texts: [[float(i in t) for t in texts] for i in images], pets, batch=8)
    array([[[1., 0.]]])
    """
    order = np.argsort(trials.clusters, kind="stable")
    trials = trials.chosen(order)
    n, (c, i) = len(trials.ids), trials.shape
    opened = lru_cache(maxsize=PICTURES)(_opener(trials))
    items, _ = items_of([trials])
    require_pictures(items)
    orders = presented(trials)
    out = np.empty((n, c, i))
    blocks = [Block(range(at, min(at + batch, n)), range(c * i)) for at in range(0, n, batch)]
    with kept_scores(cache, system, items, _facts(trials), batch, len(blocks)) as shelf:
        for block in track(blocks, "scoring"):
            part = shelf.find(block) if shelf else None
            if part is None:
                asked = (
                    _asked(score, trials, block.images, opened, orders)
                    if pairs is None
                    else _asked_in_bulk(pairs, trials, block.images, opened, orders)
                )
                part = asked.reshape(block.shape)
                if shelf:
                    shelf.keep(block, part)
            out[order[block.images.start : block.images.stop]] = part.reshape(-1, c, i)
    return out


Orders = tuple[IntArray, IntArray]
Opened = Callable[[str], Any]


def _asked(score: Callable[..., ArrayLike], trials: Trials, which: range, opened: Opened, orders: Orders) -> FloatArray:
    """The scores (trials, C, I) of some trials, one call each."""
    out = np.empty((len(which), *trials.shape))
    for at, t in enumerate(which):
        image, caption = (order[t] for order in orders)
        given = score([opened(name) for name in trials.images[t][image].tolist()], trials.captions[t][caption].tolist())
        part = _checked(given, trials.shape[::-1], trials.ids[t : t + 1], "score(images, texts)")
        out[at][np.ix_(caption, image)] = part.T
    return out


def _asked_in_bulk(pairs: Callable[..., ArrayLike], trials: Trials, which: range, opened: Opened, orders: Orders) -> FloatArray:
    """The same in one call for all pairs of some trials, in the order in which each trial is shown."""
    rows = np.arange(which.start, which.stop)[:, None, None]
    image, caption = np.broadcast_arrays(orders[0][which.start : which.stop, None, :], orders[1][which.start : which.stop, :, None])
    names, texts = trials.images[rows, image], trials.captions[rows, caption]
    given = pairs([opened(name) for name in names.ravel().tolist()], texts.ravel().tolist())
    part = _checked(given, (names.size,), trials.ids[which.start : which.stop], "score_pairs(images, texts)")
    out = np.empty(names.shape)
    out[rows - which.start, caption, image] = part.reshape(names.shape)
    return out


def _checked(given: ArrayLike, shape: tuple[int, ...], ids: IdArray, what: str) -> FloatArray:
    part = as_array(given, "scoring")
    if part.shape != shape:
        named = "images x texts" if len(shape) == 2 else "pairs"
        raise CrossmatchError(f"{what} gave shape {part.shape} in trial {str(ids[0])!r}; {shape} ({named}) was expected.")
    if part.dtype.kind not in "fiub":
        raise CrossmatchError(f"{what} gave {part.dtype}; real numbers were expected.")
    if part.dtype.kind in "iu" and part.size and int(np.abs(part.astype(object)).max()) > EXACT:
        raise CrossmatchError(f"{what} gave a whole number beyond 2^53 in trial {str(ids[0])!r} or after it. Give floating point.")
    with np.errstate(over="ignore"):  # a long double may become infinite here, and is refused below
        part = part.astype(np.float64)
    bad = ~np.isfinite(part.reshape(len(ids), -1)).all(axis=1)
    if bad.any():
        raise CrossmatchError(
            f"{what} gave NaN or infinity in trial {str(ids[bad.argmax()])!r}, and nothing of its block is kept. Look for a "
            "division by zero or an overflow in the model."
        )
    return part


def _opener(trials: Trials) -> Callable[[str], Any]:
    if trials.open_image is None:
        raise CrossmatchError(
            "this benchmark has no pictures here, only ids and texts. Get them (`crossmatch data list` says how), or give "
            "precomputed scores."
        )
    return partial(opened_picture, trials.open_image)


def items_of(tasks: Sequence[Trials]) -> tuple[Collection, list[tuple[IntArray, IntArray]]]:
    """Each image and each text of all tasks once, and where those of each trial are among them: (N, I) and (N, C) by task."""
    images, captions = (np.unique(np.concatenate([getattr(t, name).ravel() for t in tasks])) for name in ("images", "captions"))
    texts = tuple(captions.tolist())
    opener = tasks[0].open_image
    held = Collection(images, np.arange(len(texts)), texts, np.zeros((0, 2)), opener)  # type: ignore[arg-type]
    return held, [(np.searchsorted(images, t.images), np.searchsorted(captions, t.captions)) for t in tasks]


def _facts(trials: Trials) -> Iterator[object]:
    """Whatever else the scores depend on."""
    yield "trials"
    yield from (trials.ids.tolist(), trials.images.tolist(), trials.captions.tolist())  # ids, because they fix the order shown
