"""Agreement of any number of annotators: Fleiss' kappa and Krippendorff's alpha with bootstrap intervals."""

from __future__ import annotations

import numpy as np
from scipy import special

from crossmatch.data.arrays import BoolArray, FloatArray
from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.metrics.agreement.answer_arrays import AnswerPatterns, Answers, Values
from crossmatch.metrics.agreement.coefficient import (
    BY_CHANCE,
    ROUNDING,
    Agreement,
    format_all,
    interval_without_variance,
)
from crossmatch.metrics.cluster_bootstrap import CONFIDENCE_LEVEL

DEFAULT_SAMPLES = 200
LEVELS = ("nominal", "ordinal", "interval")
MAX_ELEMENTS = 2**22  # array elements in memory at a time


def fleiss_kappa(
    answers: Answers, answers_per_item: int | None = None, *, samples: int = DEFAULT_SAMPLES, seed: int = 0
) -> Agreement:
    """Fleiss' kappa of categorical answers, with the same number of answers for every item.

        κ = (P̄ - P_e) / (1 - P_e),    P̄ = 1/N Σ_i Σ_k n_ik (n_ik - 1) / (m (m - 1)),    P_e = Σ_k (Σ_i n_ik / (N m))²

    n_ik of the m answers to item i have the value k. The interval is the bootstrap of `krippendorff_alpha`.

    Items with other numbers of answers are never dropped silently: if a third annotator answers only where two disagree, the items
    with two answers are exactly those with agreement.

    With `answers_per_item`, only the items with exactly this number of answers count; `Agreement.left_out` counts the others.

    Source: fleiss1971measuring.

    >>> answers = Answers.from_table([[1, 1, 1], [2, 2, 2], [1, 1, 2], [2, 2, 2], [1, 2, 2]])
    >>> agreement = fleiss_kappa(answers)
    >>> round(agreement.value, 3), agreement.items, agreement.people, round(agreement.observed, 3)
    (0.444, 5, 3, 0.733)
    """
    _require_samples(samples)
    if answers_per_item is not None and answers_per_item < 2:
        raise CrossmatchError(f"answers_per_item must be at least 2 (got {answers_per_item}).")
    _, item, answer_counts = np.unique(answers.item, return_inverse=True, return_counts=True)
    sizes, items_of_size = np.unique(answer_counts, return_counts=True)
    if answers_per_item is None and len(sizes) > 1:
        sizes_text = ", ".join(f"{n:,} with {m}" for m, n in zip(sizes.tolist()[:4], items_of_size.tolist(), strict=False))
        raise CrossmatchError(
            f"Fleiss' kappa needs the same number of answers for every item, but items have different numbers ({sizes_text}"
            f"{' …' * (len(sizes) > 4)}). Select one number with answers_per_item, or use Krippendorff's alpha."
        )
    if answers_per_item is not None and len(answers) and answers_per_item not in sizes:
        reason = f"no item has exactly {answers_per_item} answers; items have {', '.join(map(str, sizes.tolist()))}."
        return Agreement.undefined(reason, 0, len(np.unique(answers.person)), left_out=len(answer_counts))
    size = answers_per_item if answers_per_item is not None else int(sizes[0]) if len(sizes) else 0
    return _agreement(answers, (answer_counts == size)[item], "nominal", samples, seed, fleiss=True)


def krippendorff_alpha(answers: Answers, level: str = "nominal", *, samples: int = DEFAULT_SAMPLES, seed: int = 0) -> Agreement:
    """Krippendorff's alpha; items may have different numbers of answers, from different annotators.

        α = 1 - D_o / D_e,    D_o = 1/N Σ_i Σ_{a≠b of i} δ²(a, b) / (m_i - 1),    D_e = 1/(N (N - 1)) Σ_{a≠b of all} δ²(a, b)

    N is the number of answers, m_i the number of answers to item i. Items with one answer are left out. δ² depends on the level of
    measurement: 1 for different values (`nominal`), the squared difference (`interval`), or the squared difference of the mean
    ranks among all answers (`ordinal`).

    The interval is a percentile bootstrap over items, with percentiles at Φ(∓ √(n/(n-1)) t(n - 1)), which widens it for few items
    (hesterberg2015what). A replicate in which all answers are equal has no alpha; it counts as -1 at the lower end and as 1 at the
    upper end. If all replicates are equal, as with perfect agreement, the interval is 1 minus Wilson's interval of D_o as a share of
    its maximum, divided by D_e. It does not depend on the order of items and annotators.

    Limits: the interval is too narrow for rare values. If disputed items get more answers, both D_o and D_e give them more weight.

    Source: krippendorff2004content, ch. 11; efron1993introduction, ch. 13.

    >>> answers = Answers.from_table([[1, 1, np.nan], [2, 2, 3], [3, 3, 3], [np.nan, 4, 4], [1, 2, 2], [5, np.nan, np.nan]])
    >>> [round(krippendorff_alpha(answers, level).value, 3) for level in LEVELS]
    [0.613, 0.846, 0.859]
    """
    _require_samples(samples)
    if level not in LEVELS:
        raise UsageError(f"Unknown level of measurement {level!r}. Choose one of {', '.join(LEVELS)}.")
    _, item, answer_counts = np.unique(answers.item, return_inverse=True, return_counts=True)
    return _agreement(answers, (answer_counts > 1)[item], level, samples, seed, fleiss=False)


def _agreement(answers: Answers, is_used: BoolArray, level: str, samples: int, seed: int, *, fleiss: bool) -> Agreement:
    all_items, people = (len(np.unique(ids)) for ids in (answers.item, answers.person))
    used = answers.select(is_used)
    items = len(np.unique(used.item))
    if len(used) == items:  # at most one answer per item
        reason = "no item has answers of two people. Ask more people." if people else "there are no answers yet."
        return Agreement.undefined(reason, 0, people, left_out=all_items)
    patterns, people, left_out = AnswerPatterns.from_answers(used), len(np.unique(used.person)), all_items - items
    if len(patterns.values) < 2:
        reason = f"{format_all(len(used), 'answer')} have the value {patterns.values[0]:g}, {BY_CHANCE}"
        return Agreement.undefined(reason, items, people, 1.0, left_out)
    nominal_disagreement, _ = _total_disagreement(patterns, "nominal", fleiss)
    observed, expected = _total_disagreement(patterns, level, fleiss)
    value = 1 - observed / expected
    interval = _interval(patterns, level, fleiss, value, samples, seed)
    return Agreement(value, *interval, items, people, 1 - nominal_disagreement, left_out)


def _disagreement(patterns: AnswerPatterns, times: FloatArray, level: str, fleiss: bool) -> tuple[FloatArray, FloatArray]:
    """D_o and D_e where pattern p occurs `times[r, p]` times in replicate r; D_e is 0 for a single value."""
    n = np.asarray(times @ patterns.value_counts, dtype=np.float64)
    total = n.sum(axis=1)
    scale = _scale(patterns.values, n, level)
    observed = (times * _pattern_disagreement(patterns, scale, level)).sum(axis=1) / total
    if level == "nominal":
        expected = total**2 - (n**2).sum(axis=1)
    else:
        expected = 2 * (total * (n * scale**2).sum(axis=1) - (n * scale).sum(axis=1) ** 2)
    has_two_values = (n > 0).sum(axis=1) > 1  # D_e itself may differ from 0 by rounding
    return observed, np.where(has_two_values, expected, 0.0) / (total * (total - (not fleiss)))


def _pattern_disagreement(patterns: AnswerPatterns, scale: FloatArray, level: str) -> FloatArray:
    """Σ_{a≠b} δ²(a, b) / (m - 1) of one item of each pattern, for each scale: (scales or 1) x patterns."""
    if level == "nominal":
        unequal = (patterns.answer_counts**2 - patterns.value_counts.power(2).sum(axis=1))[None]
    else:
        sums, squares = (patterns.value_counts @ power.T for power in (scale, scale**2))
        unequal = 2 * (patterns.answer_counts * squares.T - sums.T**2)
    return np.asarray(unequal / (patterns.answer_counts - 1), dtype=np.float64)


def _scale(values: Values, n: FloatArray, level: str) -> FloatArray:
    """Centred numbers whose squared differences are δ²: (replicates or 1) x values, for n[r, v] answers of value v."""
    if level == "ordinal":  # mean ranks
        return np.asarray(np.cumsum(n, axis=1) - n / 2 - n.sum(axis=1, keepdims=True) / 2, dtype=np.float64)
    scaled = values / np.abs(values).max()  # alpha has no unit; this one keeps squares from overflow
    return np.asarray((scaled - (scaled[0] + scaled[-1]) / 2) / (scaled[-1] - scaled[0]), dtype=np.float64)[None]


def _interval(patterns: AnswerPatterns, level: str, fleiss: bool, value: float, samples: int, seed: int) -> tuple[float, float]:
    """The interval that `krippendorff_alpha` describes; it contains the value."""
    n = int(patterns.item_counts.sum())
    if n < 2:
        return -1.0, 1.0
    observed, expected = _replicates(patterns, level, fleiss, samples, seed)
    is_defined = expected > 0
    coefficients = 1 - observed / np.where(is_defined, expected, 1.0)
    tail = float(special.ndtr(-np.sqrt(n / (n - 1)) * special.stdtrit(n - 1, (1 + CONFIDENCE_LEVEL) / 2)))
    low = float(np.quantile(np.where(is_defined, coefficients, -1.0), tail))
    high = float(np.quantile(np.where(is_defined, coefficients, 1.0), 1 - tail))
    if (np.abs(coefficients[is_defined] - value) <= ROUNDING).all():
        scale = _scale(patterns.values, patterns.value_totals()[None], level)[0]
        max_disagreement = 1.0 if level == "nominal" else float(scale[-1] - scale[0]) ** 2
        total = _total_disagreement(patterns, level, fleiss)
        wilson_low, wilson_high = interval_without_variance(*total, n, max_disagreement)
        low, high = min(low, wilson_low), max(high, wilson_high)
    return max(-1.0, min(low, value)), min(1.0, max(high, value))


def _total_disagreement(patterns: AnswerPatterns, level: str, fleiss: bool) -> tuple[float, float]:
    observed, expected = _disagreement(patterns, patterns.item_counts[None].astype(np.float64), level, fleiss)
    return float(observed[0]), float(expected[0])


def _replicates(patterns: AnswerPatterns, level: str, fleiss: bool, samples: int, seed: int) -> tuple[FloatArray, FloatArray]:
    """D_o and D_e of each bootstrap replicate."""
    rng, n = np.random.default_rng(seed), patterns.item_counts.sum()
    block = max(1, MAX_ELEMENTS // (len(patterns.item_counts) + len(patterns.values)))
    blocks = []
    for start in range(0, samples, block):
        times = rng.multinomial(n, patterns.item_counts / n, size=min(block, samples - start)).astype(np.float64)
        blocks.append(_disagreement(patterns, times, level, fleiss))
    observed, expected = (np.concatenate(column) for column in zip(*blocks, strict=True))
    return observed, expected


def _require_samples(samples: int) -> None:
    if samples < 2:
        raise CrossmatchError(f"samples must be at least 2 for a bootstrap interval (got {samples}); {DEFAULT_SAMPLES} is usual.")
