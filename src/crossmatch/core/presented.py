"""In which order the candidates of a trial are shown to a model that sees them together.

`Trials` puts the candidates that belong together first. A model that prefers what it sees first would be right every time if it
were shown that order, so it is shown another one, drawn for each trial.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from crossmatch.core.arrays import FloatArray, IdArray, IntArray

if TYPE_CHECKING:
    from crossmatch.core.trials import Trials


def presented(trials: Trials, seed: int = 0) -> tuple[IntArray, IntArray]:
    """The order of the images (N, I) and of the captions (N, C): the k-th number is the place in `trials` of what is shown k-th.

    All orders are equally likely, and the two sides are drawn apart. An order depends on the trial's id and the seed alone, not on
    where the trial stands or which others there are.

    >>> from crossmatch.core.trials import Trials
    >>> trials = Trials(["t1", "t2"], [["a.jpg", "b.jpg"], ["c.jpg", "d.jpg"]], [["A cat."], ["A dog."]], ["", ""])
    >>> images, captions = presented(trials)
    >>> np.take_along_axis(trials.images, images, axis=1).tolist()
    [['a.jpg', 'b.jpg'], ['d.jpg', 'c.jpg']]
    """
    shown = uniform(trials.ids, sum(trials.shape), "presented", seed)
    images = trials.shape[1]
    return _order(shown[:, :images]), _order(shown[:, images:])


def uniform(names: IdArray | list[str], width: int, purpose: str, seed: int = 0) -> FloatArray:
    """Numbers between 0 and 1 for each name, shape (names, width), which depend on the name, the purpose and the seed alone.

    53 random bits each, from SHAKE-128: alike on every machine, and two of them are equal once in 10^16.

    >>> two = uniform(["cat.jpg", "dog.jpg"], 2, "example")
    >>> bool((uniform(["dog.jpg"], 2, "example") == two[1]).all()), bool((two != uniform(["cat.jpg", "dog.jpg"], 2, "other")).all())
    (True, True)
    """
    said = f"crossmatch {purpose} {seed} ".encode()
    raw = b"".join(hashlib.shake_128(said + str(name).encode()).digest(8 * width) for name in names)
    bits: NDArray[np.uint64] = np.frombuffer(raw, dtype="<u8").reshape(len(names), width) >> np.uint64(11)
    return np.asarray(bits * 2.0**-53, dtype=np.float64)


def _order(drawn: FloatArray) -> IntArray:
    return np.asarray(np.argsort(drawn, axis=1, kind="stable"), dtype=np.int64)
