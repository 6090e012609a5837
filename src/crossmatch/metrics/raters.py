"""How far any number of people agree: Fleiss' and Krippendorff's coefficients with intervals.

What a coefficient is stands in `metrics.coefficient`; two people are compared in `metrics.cohen`.
"""

from __future__ import annotations

import numpy as np
from scipy import special

from crossmatch.core.arrays import BoolArray, FloatArray
from crossmatch.core.errors import CrossmatchError, WrongWords
from crossmatch.metrics.answers import Answers, Kinds, Values
from crossmatch.metrics.coefficient import BY_CHANCE, ROUNDING, Agreement, all_of, library, number_of, without_spread
from crossmatch.metrics.significance import LEVEL

SAMPLES = 200
LEVELS = ("nominal", "ordinal", "interval")
ROOM = 2**22  # numbers held in memory at a time


def fleiss(said: Answers, answers: int | None = None, *, samples: int = SAMPLES, seed: int = 0) -> Agreement:
    """Fleiss' kappa of any number of people's answers, as names; every item has as many answers, of whomever.

        κ = (P̄ - P_e) / (1 - P_e),    P̄ = 1/N Σ_i Σ_k n_ik (n_ik - 1) / (m (m - 1)),    P_e = Σ_k (Σ_i n_ik / (N m))²

    n_ik of the m answers to item i are k. Items with other numbers of answers have no place in it, and to leave them out unasked
    would not do: where a third person is asked only when two differ, the items with two answers are those on which they agreed. So
    unequal numbers are an error; `answers` takes the items with exactly so many, and `left_out` counts the rest. The value is
    statsmodels'; the interval is the bootstrap of `krippendorff`. Source: fleiss1971measuring.

    >>> said = Answers.from_table([[1, 1, 1], [2, 2, 2], [1, 1, 2], [2, 2, 2], [1, 2, 2]])
    >>> found = fleiss(said)
    >>> round(found.value, 3), found.items, found.people, round(found.observed, 3)
    (0.444, 5, 3, 0.733)
    """
    _require_samples(samples)
    _, item, times = np.unique(said.item, return_inverse=True, return_counts=True)
    if answers is not None and answers < 2:
        raise CrossmatchError(f"items with {number_of(answers, 'answer')} were asked for; agreement needs 2 or more.")
    sizes, many = np.unique(times, return_counts=True)
    if answers is None and len(sizes) > 1:
        held = ", ".join(f"{n:,} with {m}" for m, n in zip(sizes.tolist()[:4], many.tolist(), strict=False))
        raise CrossmatchError(
            f"items have different numbers of answers ({held}{' …' * (len(sizes) > 4)}), and Fleiss' kappa needs as many for each. "
            "Take the items with one number (answers=…), or Krippendorff's alpha, which takes them all."
        )
    size = answers if answers is not None else int(sizes[0]) if len(sizes) else 0
    if answers is not None and len(said) and answers not in sizes:
        reason = f"no item has exactly {answers} answers; they have {', '.join(map(str, sizes.tolist()))}."
        return Agreement.undefined(reason, 0, len(np.unique(said.person)), left_out=len(times))
    return _agreement(said, (times == size)[item], "nominal", samples, seed, fleiss=True)


def krippendorff(said: Answers, level: str = "nominal", *, samples: int = SAMPLES, seed: int = 0) -> Agreement:
    """Krippendorff's alpha of any number of people's answers, of whomever; items may have different numbers of them.

        α = 1 - D_o / D_e,    D_o = 1/N Σ_i Σ_{a≠b of i} δ²(a, b) / (m_i - 1),    D_e = 1/(N (N - 1)) Σ_{a≠b of all} δ²(a, b)

    with N answers in all, m_i of them to item i; items with one answer are left out. δ² is 1 between different values (`nominal`),
    the squared difference (`interval`), or the squared difference of their mean ranks among all answers (`ordinal`). The value is
    that of the `krippendorff` package, or the same in closed form where its table (items x values²) would not fit in memory.

    The interval draws as many items as there are, with replacement, `samples` times, and takes percentiles, a little farther out
    for few items: at Φ(∓ √(n/(n-1)) t(n - 1)) (hesterberg2015what). A replicate in which all answers are the same value could be
    anything: it counts as -1 at the lower end and as 1 at the upper one. Where all replicates are alike (such as when everybody
    always agrees) the interval is that of `cohen`, with the disagreement as a share of the largest δ². The same answers give the
    same interval in any order of items and people. Rare values make it too narrow, as that of `cohen`; and where more people are
    asked because the first ones differ, both D_o and D_e count what is disputed more. Source: krippendorff2004content, ch. 11;
    efron1993introduction, ch. 13.

    >>> said = Answers.from_table([[1, 1, np.nan], [2, 2, 3], [3, 3, 3], [np.nan, 4, 4], [1, 2, 2], [5, np.nan, np.nan]])
    >>> [round(krippendorff(said, level).value, 3) for level in LEVELS]
    [0.613, 0.846, 0.859]
    """
    _require_samples(samples)
    if level not in LEVELS:
        raise WrongWords(f"there is no level {level!r}; there are {', '.join(LEVELS)}.")
    _, item, times = np.unique(said.item, return_inverse=True, return_counts=True)
    return _agreement(said, (times > 1)[item], level, samples, seed, fleiss=False)


def _agreement(all_said: Answers, kept: BoolArray, level: str, samples: int, seed: int, *, fleiss: bool) -> Agreement:
    total, people = (len(np.unique(ids)) for ids in (all_said.item, all_said.person))
    said = all_said.among(kept)
    items = len(np.unique(said.item))
    if len(said) == items:  # one answer each, or none at all
        reason = "nobody answered anything yet." if not people else "no item has answers of two people. Ask more people."
        return Agreement.undefined(reason, 0, people, left_out=total)
    kinds, people, left_out = Kinds.of(said), len(np.unique(said.person)), total - items
    if len(kinds.values) < 2:
        reason = f"{all_of(len(said), 'answer')} are the value {kinds.values[0]:g}, {BY_CHANCE}"
        return Agreement.undefined(reason, items, people, 1.0, left_out)
    observed = 1 - _disagreement_of_all(kinds, "nominal", fleiss)[0]
    value = _coefficient(kinds, level, fleiss)
    return Agreement(value, *_interval(kinds, level, fleiss, value, samples, seed), items, people, observed, left_out)


def _disagreement(kinds: Kinds, times: FloatArray, level: str, fleiss: bool) -> tuple[FloatArray, FloatArray]:
    """D_o and D_e where each kind was drawn so many times (replicates x kinds); D_e is 0 where only one value was drawn."""
    n = np.asarray(times @ kinds.counts, dtype=np.float64)
    total = n.sum(axis=1)
    scale = _scale(kinds.values, n, level)
    seen = (times * _unlike(kinds, scale, level)).sum(axis=1) / total
    if level == "nominal":
        chance = total**2 - (n**2).sum(axis=1)
    else:
        chance = 2 * (total * (n * scale**2).sum(axis=1) - (n * scale).sum(axis=1) ** 2)
    told = (n > 0).sum(axis=1) > 1  # not by D_e itself, in which rounding may leave something
    return seen, np.where(told, chance, 0.0) / (total * (total - (not fleiss)))


def _unlike(kinds: Kinds, scale: FloatArray, level: str) -> FloatArray:
    """Σ_{a≠b} δ²(a, b) / (m - 1) of one item of each kind on each of some scales: (scales or 1) x kinds."""
    if level == "nominal":
        found = (kinds.answers**2 - kinds.counts.power(2).sum(axis=1))[None]
    else:
        sums, squares = (kinds.counts @ power.T for power in (scale, scale**2))
        found = 2 * (kinds.answers * squares.T - sums.T**2)
    return np.asarray(found / (kinds.answers - 1), dtype=np.float64)


def _scale(values: Values, n: FloatArray, level: str) -> FloatArray:
    """The values on the scale whose differences count, about 0: (replicates or 1) x values, where n[r, v] answers were drawn."""
    if level == "ordinal":  # the mean ranks
        return np.asarray(np.cumsum(n, axis=1) - n / 2 - n.sum(axis=1, keepdims=True) / 2, dtype=np.float64)
    small = values / np.abs(values).max()  # any unit will do, and in this one no square overflows
    return np.asarray((small - (small[0] + small[-1]) / 2) / (small[-1] - small[0]), dtype=np.float64)[None]


def _coefficient(kinds: Kinds, level: str, fleiss: bool) -> float:
    """By the libraries; in closed form where their tables would not fit in memory."""
    if kinds.times.sum() * len(kinds.values) ** 2 > ROOM:
        seen, chance = _disagreement_of_all(kinds, level, fleiss)
        return 1 - seen / chance
    if fleiss:
        return float(library("statsmodels.stats.inter_rater").fleiss_kappa(kinds.table()))
    places = np.arange(len(kinds.values))
    scale = _scale(kinds.values, kinds.totals()[None], level)[0] if level == "interval" else places
    return float(library("krippendorff").alpha(value_counts=kinds.table(), value_domain=scale, level_of_measurement=level))


def _interval(kinds: Kinds, level: str, fleiss: bool, value: float, samples: int, seed: int) -> tuple[float, float]:
    """The interval of `krippendorff`; it holds the value."""
    n = int(kinds.times.sum())
    if n < 2:
        return -1.0, 1.0
    seen, chance = _replicates(kinds, level, fleiss, samples, seed)
    told = chance > 0
    found = 1 - seen / np.where(told, chance, 1.0)
    tail = float(special.ndtr(-np.sqrt(n / (n - 1)) * special.stdtrit(n - 1, (1 + LEVEL) / 2)))
    low = float(np.quantile(np.where(told, found, -1.0), tail))
    high = float(np.quantile(np.where(told, found, 1.0), 1 - tail))
    if (np.abs(found[told] - value) <= ROUNDING).all():
        scale = _scale(kinds.values, kinds.totals()[None], level)[0]
        most = 1.0 if level == "nominal" else float(scale[-1] - scale[0]) ** 2
        least, best = without_spread(*_disagreement_of_all(kinds, level, fleiss), n, most)
        low, high = min(low, least), max(high, best)
    return max(-1.0, min(low, value)), min(1.0, max(high, value))


def _disagreement_of_all(kinds: Kinds, level: str, fleiss: bool) -> tuple[float, float]:
    seen, chance = _disagreement(kinds, kinds.times[None].astype(np.float64), level, fleiss)
    return float(seen[0]), float(chance[0])


def _replicates(kinds: Kinds, level: str, fleiss: bool, samples: int, seed: int) -> tuple[FloatArray, FloatArray]:
    """D_o and D_e of each replicate."""
    rng, n = np.random.default_rng(seed), kinds.times.sum()
    block = max(1, ROOM // (len(kinds.times) + len(kinds.values)))
    parts = [
        _disagreement(kinds, rng.multinomial(n, kinds.times / n, size=min(block, samples - at)).astype(np.float64), level, fleiss)
        for at in range(0, samples, block)
    ]
    seen, chance = (np.concatenate(column) for column in zip(*parts, strict=True))
    return seen, chance


def _require_samples(samples: int) -> None:
    if samples < 2:
        raise CrossmatchError(f"{number_of(samples, 'bootstrap sample')} give no interval; take at least 2 ({SAMPLES} is usual).")
