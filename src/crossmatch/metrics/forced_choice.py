"""Forced-choice metrics: which caption for this image, which image for this caption. A strict win is needed; a tie loses.

Scores have shape (N trials, C captions, I images). Caption n and image n belong together; the rest of the longer side are
distractors. BISON has C=1, I=2; SugarCrepe C=2, I=1; Winoground and BiVLC C=2, I=2. Every function takes such scores or their
`Outcomes`, and returns 1 or 0 for each trial.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np

from crossmatch.data.arrays import FloatArray, IntArray
from crossmatch.data.trial_outcomes import Outcomes, count_matched_pairs

TrialScores = Outcomes | FloatArray
Choice = Callable[[TrialScores], FloatArray]  # a forced-choice metric

ALL = slice(None)


def i2t_choice(trials: TrialScores) -> FloatArray:
    """1 if every image scores strictly highest with its own caption (I2T; text score of Winoground).

        I2T = Π_i 1[ s(c_i, i) > max_{c != c_i} s(c, i) ]

    Source: miranda2024bivlc, eq. 1; thrush2022winoground, eq. 1.

    >>> i2t_choice(np.array([[[0.9, 0.2], [0.1, 0.3]], [[0.5, 0.2], [0.5, 0.3]]]))    # the second trial has a tie
    array([1., 0.])
    """
    return _all_right(trials, images=ALL)


def t2i_choice(trials: TrialScores) -> FloatArray:
    """1 if every caption scores strictly highest with its own image (T2I; image score of Winoground).

        T2I = Π_c 1[ s(c, i_c) > max_{i != i_c} s(c, i) ]

    Source: miranda2024bivlc, eq. 2; thrush2022winoground, eq. 2.

    >>> t2i_choice(np.array([[[0.9, 0.2]], [[0.4, 0.4]]]))        # one caption, two images
    array([1., 0.])
    """
    return _all_right(trials, captions=ALL)


def group_choice(trials: TrialScores) -> FloatArray:
    """1 if both directions are right.

        Group = I2T · T2I

    Source: thrush2022winoground, eq. 3; miranda2024bivlc, eq. 3.

    >>> group_choice(np.array([[[0.9, 0.2], [0.1, 0.3]]]))
    array([1.])
    """
    return _all_right(trials, images=ALL, captions=ALL)


def accuracy(trials: TrialScores) -> FloatArray:
    """1 if the only choice of a trial is right: the image for BISON's caption, the caption for SugarCrepe's image.

    Source: hu2019bison, sec. 3.3; hsieh2023sugarcrepe, sec. 3.

    >>> accuracy(np.array([[[0.9, 0.2]], [[0.2, 0.9]]])), accuracy(np.array([[[0.9], [0.2]]]))
    (array([1., 0.]), array([1.]))
    """
    return _all_right(trials, images=ALL, captions=ALL)


def ipos2t(trials: TrialScores) -> FloatArray:
    """1 if the positive image scores strictly higher with the positive caption (miranda2024bivlc, tab. 3).

    With two images and two captions, I2T = Ipos2T · Ineg2T and T2I = Tpos2I · Tneg2I.

    >>> scores = np.array([[[0.9, 0.5], [0.1, 0.3]]])             # the negative image prefers the positive caption
    >>> [float(f(scores)[0]) for f in (ipos2t, ineg2t, tpos2i, tneg2i)]
    [1.0, 0.0, 1.0, 1.0]
    """
    return _all_right(trials, images=slice(0, 1))


def ineg2t(trials: TrialScores) -> FloatArray:
    """1 if the negative image scores strictly higher with the negative caption; see `ipos2t`."""
    return _all_right(trials, images=slice(1, 2))


def tpos2i(trials: TrialScores) -> FloatArray:
    """1 if the positive caption scores strictly higher with the positive image; see `ipos2t`."""
    return _all_right(trials, captions=slice(0, 1))


def tneg2i(trials: TrialScores) -> FloatArray:
    """1 if the negative caption scores strictly higher with the negative image; see `ipos2t`."""
    return _all_right(trials, captions=slice(1, 2))


def required_choices(choice: Choice, shape: tuple[int, int]) -> tuple[IntArray, IntArray]:
    """The pairs whose image must choose right, and those whose caption must: the metric is 0 if such a choice alone is wrong.

    >>> [pairs.tolist() for pairs in required_choices(i2t_choice, (2, 2))]
    [[0, 1], []]
    """
    pairs = count_matched_pairs(shape)
    one_wrong = Outcomes.from_wins(~np.eye(2 * pairs, dtype=bool), shape)
    required = np.flatnonzero(choice(one_wrong) == 0)
    return required[required < pairs], required[required >= pairs] - pairs


def closed_form_chance(choice: Choice, shape: tuple[int, int]) -> float | None:
    """Expected value of a metric for random scores without ties, on trials of `shape` (captions, images); None if not known.

    One of C captions is right with probability 1/C, independently for M images; likewise for captions. For both directions, the
    largest of the r (C + I - r) scores in the rows and columns of r pairs must belong to one of the r pairs, and so on for the
    others:

        I2T = C^-M,    T2I = I^-M,    Group = Π_{r=1..M} 1 / (C + I - r).

    >>> [round(closed_form_chance(choice, (2, 2)), 4) for choice in (i2t_choice, t2i_choice, group_choice, ipos2t)]
    [0.25, 0.25, 0.1667, 0.5]
    >>> closed_form_chance(accuracy, (1, 2))
    0.5
    """
    captions, images = shape
    pairs = min(shape)
    by_image, by_caption = required_choices(choice, shape)
    wins = np.zeros((1, 2 * pairs), dtype=bool)
    wins[0, by_image], wins[0, by_caption + pairs] = True, True
    if not choice(Outcomes.from_wins(wins, shape))[0]:  # it needs more than these choices
        return None
    if not len(by_caption):
        return float(captions) ** -len(by_image)
    if not len(by_image):
        return float(images) ** -len(by_caption)
    if len(by_image) + len(by_caption) < 2 * pairs:
        return None
    return 1.0 / prod(captions + images - r for r in range(1, pairs + 1))


def _all_right(trials: TrialScores, images: slice = slice(0), captions: slice = slice(0)) -> FloatArray:
    """1 if these images and these captions, by the index of their pair, choose right."""
    outcomes = trials if isinstance(trials, Outcomes) else Outcomes.from_scores(trials)
    pairs = outcomes.matched_pairs
    mask = sum(1 << bit for bit in (*range(pairs)[images], *range(pairs, 2 * pairs)[captions]))
    return np.asarray(outcomes.has_wins(mask), dtype=np.float64)
