"""Do two metrics order the models alike? Kendall's tau-b between metrics over models, with the number of models and the doubt.

The sign of the difference of every two models by every metric is one matrix S (pairs of models x metrics); all correlations are
products of it, and a bootstrap replicate is the same product with weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from crossmatch.core.arrays import BoolArray, FloatArray, IntArray, frozen, require_finite
from crossmatch.core.errors import CrossmatchError

LEAST = 3  # with two models every tau is 1 or -1 and says nothing
CHUNK = 256  # bootstrap replicates held in memory at a time

Masked = np.ma.MaskedArray[Any, np.dtype[np.float64]]


@dataclass(frozen=True, eq=False)
class Correlations:
    """Tau between every two metrics. Masked where it is undefined: too few models in common, or all of them level by a metric.

    `models[a, b]` is the number of models that have both metrics.
    """

    tau: Masked
    models: IntArray


def kendall_tau_b(x: FloatArray, y: FloatArray) -> float:
    """Kendall's tau-b between two lists of values of the same things.

        τ_b = (C - D) / √((C + D + T_x) · (C + D + T_y))

    C and D count the pairs that both lists order alike and unlike, T_x the pairs level in x alone, T_y those level in y alone.
    Without ties it is (C - D) / (n(n - 1)/2). A constant list has no order to compare, which is an error, never NaN.
    Source: kendall1945treatment; chun2022eccv, sec. 4.2 and A.2.

    >>> kendall_tau_b(np.array([1.0, 2, 3, 4]), np.array([1.0, 3, 2, 4]))
    0.666...
    >>> kendall_tau_b(np.array([1.0, 2, 3]), np.array([5.0, 5, 5]))
    Traceback (most recent call last):
    ...
    crossmatch.core.errors.CrossmatchError: one of the two lists is constant: it orders nothing, so tau is undefined. Leave it out.
    """
    if x.shape != y.shape or x.ndim != 1 or len(x) < 2:
        raise CrossmatchError(f"tau compares two flat lists of one length, two or longer; it was given {x.shape} and {y.shape}.")
    found = tau_b(np.stack([x, y], axis=1), least=2).tau
    if np.ma.getmaskarray(found)[0, 1]:
        raise CrossmatchError("one of the two lists is constant: it orders nothing, so tau is undefined. Leave it out.")
    return float(found[0, 1])


def tau_b(values: FloatArray, present: BoolArray | None = None, least: int = LEAST) -> Correlations:
    """Kendall's tau-b between every two columns of `values` (models x metrics), over the models that have both.

        τ_ab = Σ_p S_pa S_pb / √(Σ_p S_pa² V_pb · Σ_p S_pb² V_pa)

    p runs over pairs of models, S is the sign of their difference, V is 1 where both models have the metric.
    Source: kendall1945treatment; chun2022eccv, sec. 4.2, Table 5.

    >>> tau_b(np.array([[1.0, 9, 0], [2, 8, 0], [3, 7, 0]])).tau       # the third metric is constant
    masked_array(
      data=[[1.0, -1.0, --],
            [-1.0, 1.0, --],
            [--, --, --]],
      mask=[[False, False,  True],
            [False, False,  True],
            [ True,  True,  True]],
      fill_value=1e+20)
    """
    there = _checked(values, present)
    sign, valid = _pairs(values, there)
    weight = np.ones((1, len(sign)))
    top, bottom = _products(sign, valid, weight)
    models = there.T.astype(np.int64) @ there.astype(np.int64)
    tau = _divided(top[0], bottom[0])
    tau[models < least] = np.ma.masked
    frozen(models)
    return Correlations(tau, models)


def tau_b_interval(
    values: FloatArray, present: BoolArray | None = None, *, samples: int = 10_000, seed: int = 0, level: float = 0.95
) -> tuple[Masked, Masked]:
    """Percentile intervals of every tau when models are drawn anew, with replacement (efron1993introduction, ch. 13).

    A model drawn twice is level with itself by every metric, and tau-b leaves pairs out that are level in both lists, so a
    replicate is the weighted sum with weights w_i w_j. Replicates in which tau is undefined are left out; where that is more than
    half of them, so is the interval. The models are those that somebody happened to publish, not a random sample of anything:
    read the interval as how much tau hangs on the choice of models.

    >>> few = np.array([[1.0, 1], [2, 3], [3, 2], [4, 4], [5, 5]])
    >>> low, high = tau_b_interval(few, samples=2000)
    >>> bool(low[0, 1] < tau_b(few).tau[0, 1] <= high[0, 1])
    True
    """
    there = _checked(values, present)
    if samples < 2:
        raise CrossmatchError(f"{samples} bootstrap samples give no interval; take at least 2 (10000 is usual).")
    sign, valid = _pairs(values, there)
    n = len(values)
    first, second = np.triu_indices(n, 1)
    rng = np.random.default_rng(seed)
    drawn = []
    for at in range(0, samples, CHUNK):
        times = rng.multinomial(n, np.full(n, 1 / n), size=min(CHUNK, samples - at)).astype(np.float64)
        drawn.append(_divided(*_products(sign, valid, times[:, first] * times[:, second])).filled(np.nan))
    taus = np.concatenate(drawn)
    undefined = np.isnan(taus).mean(axis=0) > 0.5
    kept = np.where(undefined, 0.0, taus)  # a column of nothing but NaN would warn
    low, high = np.nanquantile(kept, [(1 - level) / 2, (1 + level) / 2], axis=0)
    return np.ma.MaskedArray(low, undefined), np.ma.MaskedArray(high, undefined)


def tau_b_p_values(values: FloatArray, present: BoolArray | None = None) -> Masked:
    """Two-sided p of every tau under no association: exact where no two models are level, else Kendall's normal approximation.

    Source: kendall1945treatment, as `scipy.stats.kendalltau` computes it.

    >>> tau_b_p_values(np.arange(8.0).reshape(4, 2))[0, 1].round(4)       # 2 of the 4! orders are as extreme
    np.float64(0.0833)
    """
    from scipy.stats import kendalltau  # heavy, and wanted by few

    there = _checked(values, present)
    undefined = np.ma.getmaskarray(tau_b(values, there).tau)
    p = np.zeros(undefined.shape)
    for a, b in zip(*np.nonzero(np.triu(~undefined)), strict=True):
        both = there[:, a] & there[:, b]
        p[a, b] = p[b, a] = kendalltau(values[both, a], values[both, b]).pvalue
    return np.ma.MaskedArray(p, undefined)


def _checked(values: FloatArray, present: BoolArray | None) -> BoolArray:
    there = np.ones(values.shape, dtype=bool) if present is None else present
    if values.ndim != 2 or there.shape != values.shape:
        raise CrossmatchError(f"values have shape {values.shape} and presence {there.shape}; both must be models x metrics.")
    require_finite(values[there], "values of metrics", "Leave out what a model was not evaluated on.")
    return there


def _pairs(values: FloatArray, there: BoolArray) -> tuple[FloatArray, FloatArray]:
    """S and V: for every two models and each metric the sign of the difference, and whether both have the metric."""
    first, second = np.triu_indices(len(values), 1)
    valid = (there[first] & there[second]).astype(np.float64)
    known = np.where(there, values, 0.0)
    return np.sign(known[first] - known[second]) * valid, valid


def _products(sign: FloatArray, valid: FloatArray, weight: FloatArray) -> tuple[FloatArray, FloatArray]:
    """C - D and (C + D + T_a)(C + D + T_b) for each row of weights, of shape (rows, metrics, metrics)."""
    metrics = sign.shape[1]
    a, b = np.triu_indices(metrics)
    agree = weight @ (sign[:, a] * sign[:, b])
    ordered = (weight @ (sign[:, a] ** 2 * valid[:, b])) * (weight @ (sign[:, b] ** 2 * valid[:, a]))
    top, bottom = np.zeros((2, len(weight), metrics, metrics))
    for square, flat in ((top, agree), (bottom, ordered)):
        square[:, a, b] = square[:, b, a] = flat
    return top, bottom


def _divided(top: FloatArray, bottom: FloatArray) -> Masked:
    undefined = bottom == 0
    return np.ma.MaskedArray(top / np.sqrt(np.where(undefined, 1.0, bottom)), undefined)
