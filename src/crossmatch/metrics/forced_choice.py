"""Forced-choice metrics: which caption for this image, which image for this caption. A strict win is needed; a tie loses.

Scores have shape (N trials, C captions, I images). Caption n and image n belong together; the rest of the longer side are
distractors. BISON has C=1, I=2; SugarCrepe C=2, I=1; Winoground and BiVLC C=2, I=2. Every function takes such scores or their
`Outcomes`, and returns 1 or 0 for each trial.
"""

from __future__ import annotations

from math import prod

import numpy as np

from crossmatch.data.arrays import FloatArray
from crossmatch.data.trial_outcomes import Outcomes

TrialScores = Outcomes | FloatArray

# Choices that must be right: those of images and those of captions, by the index of their pair.
ALL = slice(None)
REQUIRED_CHOICES: dict[str, tuple[slice, slice]] = {
    "i2t": (ALL, slice(0)),
    "t2i": (slice(0), ALL),
    "group": (ALL, ALL),
    "ipos2t": (slice(0, 1), slice(0)),
    "ineg2t": (slice(1, 2), slice(0)),
    "tpos2i": (slice(0), slice(0, 1)),
    "tneg2i": (slice(0), slice(1, 2)),
}
REQUIRED_CHOICES |= {"accuracy": REQUIRED_CHOICES["group"], "text": REQUIRED_CHOICES["i2t"], "image": REQUIRED_CHOICES["t2i"]}


def required_bits(name: str, matched: int) -> int:
    """Bit mask of the choices that must be right, as in the codes of `Outcomes`.

    >>> [f"{required_bits(name, 2):04b}" for name in ("i2t", "t2i", "group", "ineg2t")]
    ['0011', '1100', '1111', '0010']
    """
    images, captions = REQUIRED_CHOICES[name]
    return sum(1 << bit for bit in (*range(matched)[images], *range(matched, 2 * matched)[captions]))


def i2t_choice(trials: TrialScores) -> FloatArray:
    """1 if every image scores strictly highest with its own caption (I2T; text score of Winoground).

        I2T = Π_i 1[ s(c_i, i) > max_{c != c_i} s(c, i) ]

    Source: miranda2024bivlc, eq. 1; thrush2022winoground, eq. 1.

    >>> i2t_choice(np.array([[[0.9, 0.2], [0.1, 0.3]], [[0.5, 0.2], [0.5, 0.3]]]))    # the second trial has a tie
    array([1., 0.])
    """
    return _won(trials, "i2t")


def t2i_choice(trials: TrialScores) -> FloatArray:
    """1 if every caption scores strictly highest with its own image (T2I; image score of Winoground).

        T2I = Π_c 1[ s(c, i_c) > max_{i != i_c} s(c, i) ]

    Source: miranda2024bivlc, eq. 2; thrush2022winoground, eq. 2.

    >>> t2i_choice(np.array([[[0.9, 0.2]], [[0.4, 0.4]]]))        # one caption, two images
    array([1., 0.])
    """
    return _won(trials, "t2i")


def group_choice(trials: TrialScores) -> FloatArray:
    """1 if both directions are right.

        Group = I2T · T2I

    Source: thrush2022winoground, eq. 3; miranda2024bivlc, eq. 3.

    >>> group_choice(np.array([[[0.9, 0.2], [0.1, 0.3]]]))
    array([1.])
    """
    return _won(trials, "group")


def accuracy(trials: TrialScores) -> FloatArray:
    """1 if the only choice of a trial is right: the image for BISON's caption, the caption for SugarCrepe's image.

    Source: hu2019bison, sec. 3.3; hsieh2023sugarcrepe, sec. 3.

    >>> accuracy(np.array([[[0.9, 0.2]], [[0.2, 0.9]]])), accuracy(np.array([[[0.9], [0.2]]]))
    (array([1., 0.]), array([1.]))
    """
    return _won(trials, "accuracy")


def ipos2t(trials: TrialScores) -> FloatArray:
    """1 if the positive image scores strictly higher with the positive caption (miranda2024bivlc, tab. 3).

    With two images and two captions, I2T = Ipos2T · Ineg2T and T2I = Tpos2I · Tneg2I.

    >>> scores = np.array([[[0.9, 0.5], [0.1, 0.3]]])             # the negative image prefers the positive caption
    >>> [float(f(scores)[0]) for f in (ipos2t, ineg2t, tpos2i, tneg2i)]
    [1.0, 0.0, 1.0, 1.0]
    """
    return _won(trials, "ipos2t")


def ineg2t(trials: TrialScores) -> FloatArray:
    """1 if the negative image scores strictly higher with the negative caption; see `ipos2t`."""
    return _won(trials, "ineg2t")


def tpos2i(trials: TrialScores) -> FloatArray:
    """1 if the positive caption scores strictly higher with the positive image; see `ipos2t`."""
    return _won(trials, "tpos2i")


def tneg2i(trials: TrialScores) -> FloatArray:
    """1 if the negative caption scores strictly higher with the negative image; see `ipos2t`."""
    return _won(trials, "tneg2i")


def chance(name: str, shape: tuple[int, int]) -> float:
    """Expected value of a metric for random scores without ties, on trials of `shape` (captions, images).

    One of C captions is right with probability 1/C, independently for M images; likewise for captions. For both directions, the
    largest of the r (C + I - r) scores in the rows and columns of r pairs must belong to one of the r pairs, and so on for the
    others:

        I2T = C^-M,    T2I = I^-M,    Group = Π_{r=1..M} 1 / (C + I - r).

    >>> [round(chance(name, (2, 2)), 4) for name in ("i2t", "t2i", "group", "ipos2t")], chance("accuracy", (1, 2))
    ([0.25, 0.25, 0.1667, 0.5], 0.5)
    """
    captions, images = shape
    pairs = min(shape)
    image_choices, caption_choices = (len(range(pairs)[selection]) for selection in REQUIRED_CHOICES[name])
    if not caption_choices:
        return float(captions) ** -image_choices
    if not image_choices:
        return float(images) ** -caption_choices
    return 1.0 / prod(captions + images - r for r in range(1, pairs + 1))


def _outcomes(trials: TrialScores) -> Outcomes:
    return trials if isinstance(trials, Outcomes) else Outcomes.from_scores(trials)


def _won(trials: TrialScores, name: str) -> FloatArray:
    outcomes = _outcomes(trials)
    return np.asarray(outcomes.has_wins(required_bits(name, outcomes.matched_pairs)), dtype=np.float64)
