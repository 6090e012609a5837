"""Forced choice: which caption for this image, which image for this caption. A strict win counts, a tie loses.

Scores have shape (N trials, C captions, I images). Caption n and image n belong together; whatever is beyond the shorter
side is a distractor, so BISON is C=1, I=2, SugarCrepe C=2, I=1, Winoground and BiVLC C=2, I=2. Every function takes such scores,
or the `Outcomes` of them, and gives 1 or 0 for each trial.
"""

from __future__ import annotations

from math import prod

import numpy as np

from crossmatch.core.arrays import FloatArray
from crossmatch.core.outcomes import Outcomes

Given = Outcomes | FloatArray

# Which choices of a trial a metric asks for: those of images and those of captions, by the number of their pair.
ALL = slice(None)
ASKED: dict[str, tuple[slice, slice]] = {
    "i2t": (ALL, slice(0)),
    "t2i": (slice(0), ALL),
    "group": (ALL, ALL),
    "ipos2t": (slice(0, 1), slice(0)),
    "ineg2t": (slice(1, 2), slice(0)),
    "tpos2i": (slice(0), slice(0, 1)),
    "tneg2i": (slice(0), slice(1, 2)),
}
ASKED |= {"accuracy": ASKED["group"], "text": ASKED["i2t"], "image": ASKED["t2i"]}


def mask(name: str, matched: int) -> int:
    """The bits of an outcome's code that a metric asks for.

    >>> [f"{mask(name, 2):04b}" for name in ("i2t", "t2i", "group", "ineg2t")]
    ['0011', '1100', '1111', '0010']
    """
    images, captions = ASKED[name]
    return sum(1 << bit for bit in (*range(matched)[images], *range(matched, 2 * matched)[captions]))


def i2t_choice(given: Given) -> FloatArray:
    """1 where every image scores strictly highest with its own caption (I2T; Winoground's text score).

        I2T = Π_i 1[ s(c_i, i) > max_{c != c_i} s(c, i) ]

    Source: miranda2024bivlc, eq. 1; thrush2022winoground, eq. 1.

    >>> i2t_choice(np.array([[[0.9, 0.2], [0.1, 0.3]], [[0.5, 0.2], [0.5, 0.3]]]))    # the second trial ties
    array([1., 0.])
    """
    return _won(given, "i2t")


def t2i_choice(given: Given) -> FloatArray:
    """1 where every caption scores strictly highest with its own image (T2I; Winoground's image score).

        T2I = Π_c 1[ s(c, i_c) > max_{i != i_c} s(c, i) ]

    Source: miranda2024bivlc, eq. 2; thrush2022winoground, eq. 2.

    >>> t2i_choice(np.array([[[0.9, 0.2]], [[0.4, 0.4]]]))        # one caption, two images
    array([1., 0.])
    """
    return _won(given, "t2i")


def group_choice(given: Given) -> FloatArray:
    """1 where both directions are right.

        Group = I2T · T2I

    Source: thrush2022winoground, eq. 3; miranda2024bivlc, eq. 3.

    >>> group_choice(np.array([[[0.9, 0.2], [0.1, 0.3]]]))
    array([1.])
    """
    return _won(given, "group")


def accuracy(given: Given) -> FloatArray:
    """1 where the one choice that a trial asks for is right: the image of BISON's query, the caption of SugarCrepe's image.

    Source: hu2019bison, sec. 3.3; hsieh2023sugarcrepe, sec. 3.

    >>> accuracy(np.array([[[0.9, 0.2]], [[0.2, 0.9]]])), accuracy(np.array([[[0.9], [0.2]]]))
    (array([1., 0.]), array([1.]))
    """
    return _won(given, "accuracy")


def ipos2t(given: Given) -> FloatArray:
    """1 where the positive image takes the positive caption (miranda2024bivlc, tab. 3); with two images and two captions,

        I2T = Ipos2T · Ineg2T,   T2I = Tpos2I · Tneg2I

    >>> scores = np.array([[[0.9, 0.5], [0.1, 0.3]]])             # the negative image takes the positive caption
    >>> [float(f(scores)[0]) for f in (ipos2t, ineg2t, tpos2i, tneg2i)]
    [1.0, 0.0, 1.0, 1.0]
    """
    return _won(given, "ipos2t")


def ineg2t(given: Given) -> FloatArray:
    """1 where the negative image takes the negative caption (miranda2024bivlc, tab. 3); see `ipos2t`."""
    return _won(given, "ineg2t")


def tpos2i(given: Given) -> FloatArray:
    """1 where the positive caption takes the positive image (miranda2024bivlc, tab. 3); see `ipos2t`."""
    return _won(given, "tpos2i")


def tneg2i(given: Given) -> FloatArray:
    """1 where the negative caption takes the negative image (miranda2024bivlc, tab. 3); see `ipos2t`."""
    return _won(given, "tneg2i")


def chance(name: str, shape: tuple[int, int]) -> float:
    """The expected value of a metric for random scores without ties, on trials of `shape` (captions, images).

    Of C captions an image takes its own with probability 1/C, and M images do so independently; likewise for captions. Both
    directions at once: the largest of the r (C + I - r) scores in the rows and columns of r pairs must be one of the r own ones,
    and then the same for the pairs that are left, so that

        I2T = C^-M,    T2I = I^-M,    Group = Π_{r=1..M} 1 / (C + I - r).

    >>> [round(chance(name, (2, 2)), 4) for name in ("i2t", "t2i", "group", "ipos2t")], chance("accuracy", (1, 2))
    ([0.25, 0.25, 0.1667, 0.5], 0.5)
    """
    captions, images = shape
    pairs = min(shape)
    asked_images, asked_captions = (len(range(pairs)[which]) for which in ASKED[name])
    if not asked_captions:
        return float(captions) ** -asked_images
    if not asked_images:
        return float(images) ** -asked_captions
    return 1.0 / prod(captions + images - r for r in range(1, pairs + 1))


def _outcomes(given: Given) -> Outcomes:
    return given if isinstance(given, Outcomes) else Outcomes.of(given)


def _won(given: Given, name: str) -> FloatArray:
    outcomes = _outcomes(given)
    return np.asarray(outcomes.won(mask(name, outcomes.matched)), dtype=np.float64)
