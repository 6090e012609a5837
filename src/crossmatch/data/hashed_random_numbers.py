"""Reproducible random numbers from names, and the order in which a model is shown the candidates of a trial.

`Trials` lists matching candidates first. A model that prefers what it is shown first would always be right in that order, so the
candidates of each trial are shown in a random one.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from crossmatch.data.arrays import FloatArray, IdArray, IntArray

if TYPE_CHECKING:
    from crossmatch.data.trials import Trials


def draw_presentation_order(trials: Trials, seed: int = 0) -> tuple[IntArray, IntArray]:
    """Draw the order of the images and of the captions of each trial.

    All orders are equally likely, and the two sides are independent. The order depends only on the trial's id and the seed, not on
    the other trials.

    Entry k of an order, of shape (N, I) or (N, C), is the column in `trials` of the candidate that is shown k-th.

    >>> from crossmatch.data.trials import Trials
    >>> trials = Trials(["t1", "t2"], [["a.jpg", "b.jpg"], ["c.jpg", "d.jpg"]], [["A cat."], ["A dog."]], ["", ""])
    >>> images, captions = draw_presentation_order(trials)
    >>> np.take_along_axis(trials.images, images, axis=1).tolist()
    [['a.jpg', 'b.jpg'], ['d.jpg', 'c.jpg']]
    """
    draws = hash_uniform(trials.ids, sum(trials.shape), "presented", seed)
    images = trials.shape[1]
    return _sort_order(draws[:, :images]), _sort_order(draws[:, images:])


def hash_uniform(names: IdArray | list[str], width: int, purpose: str, seed: int = 0) -> FloatArray:
    """Draw numbers in [0, 1) that depend only on the name, the purpose and the seed.

    Each has 53 random bits from SHAKE-128, and is the same on every machine.

    The numbers have shape (names, width).

    >>> two = hash_uniform(["cat.jpg", "dog.jpg"], 2, "example")
    >>> bool((hash_uniform(["dog.jpg"], 2, "example") == two[1]).all())
    True
    >>> bool((hash_uniform(["cat.jpg", "dog.jpg"], 2, "other") != two).all())
    True
    """
    prefix = f"crossmatch {purpose} {seed} ".encode()
    raw = b"".join(hashlib.shake_128(prefix + str(name).encode()).digest(8 * width) for name in names)
    bits: NDArray[np.uint64] = np.frombuffer(raw, dtype="<u8").reshape(len(names), width) >> np.uint64(11)
    return np.asarray(bits * 2.0**-53, dtype=np.float64)


def _sort_order(draws: FloatArray) -> IntArray:
    return np.asarray(np.argsort(draws, axis=1, kind="stable"), dtype=np.int64)
