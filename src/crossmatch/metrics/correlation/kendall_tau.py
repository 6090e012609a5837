"""Do two metrics rank models in the same order? Kendall's tau-b between metrics over models, with intervals and p-values.

The signs of the differences of all pairs of models form a matrix S (pairs of models x metrics). All correlations are products of
S, and a bootstrap replicate is the same product with weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from crossmatch.data.arrays import BoolArray, FloatArray, IntArray, require_finite
from crossmatch.data.errors import CrossmatchError

MIN_MODELS = 3  # with two models every tau is 1 or -1
REPLICATES_PER_BLOCK = 256

MaskedFloats = np.ma.MaskedArray[Any, np.dtype[np.float64]]


@dataclass(frozen=True, eq=False)
class TauMatrix:
    """Tau between every two metrics; masked where undefined (too few common models, or a metric is constant).

    `model_counts[a, b]` is the number of models with both metrics.
    """

    tau: MaskedFloats
    model_counts: IntArray


def kendall_tau_b(x: FloatArray, y: FloatArray) -> float:
    """Kendall's tau-b between two arrays of values of the same items.

        τ_b = (C - D) / √((C + D + T_x) · (C + D + T_y))

    C and D count concordant and discordant pairs, T_x the pairs tied in x only, T_y those tied in y only. Without ties it is
    (C - D) / (n(n - 1)/2).

    Source: kendall1945treatment; chun2022eccv, sec. 4.2 and A.2.

    >>> kendall_tau_b(np.array([1.0, 2, 3, 4]), np.array([1.0, 3, 2, 4]))
    0.666...
    >>> kendall_tau_b(np.array([1.0, 2, 3]), np.array([5.0, 5, 5]))
    Traceback (most recent call last):
    ...
    crossmatch.data.errors.CrossmatchError: Tau is undefined because one of the two arrays is constant. Leave it out.
    """
    if x.shape != y.shape or x.ndim != 1 or len(x) < 2:
        raise CrossmatchError(f"Tau needs two flat arrays of equal length, at least 2 (got shapes {x.shape} and {y.shape}).")
    tau = tau_b(np.stack([x, y], axis=1), min_models=2).tau
    if np.ma.getmaskarray(tau)[0, 1]:
        raise CrossmatchError("Tau is undefined because one of the two arrays is constant. Leave it out.")
    return float(tau[0, 1])


def tau_b(values: FloatArray, present: BoolArray | None = None, min_models: int = MIN_MODELS) -> TauMatrix:
    """Kendall's tau-b between every two columns of `values`, over the models that have both.

        τ_ab = Σ_p S_pa S_pb / √(Σ_p S_pa² V_pb · Σ_p S_pb² V_pa)

    p runs over pairs of models, S is the sign of their difference, V is 1 where both models have the metric.

    `present` says where a model has a metric. Tau is masked for fewer than `min_models` common models.

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
    has_metric = _check_values(values, present)
    sign, valid = _pair_signs(values, has_metric)
    weight = np.ones((1, len(sign)))
    numerator, denominator = _products(sign, valid, weight)
    models = has_metric.T.astype(np.int64) @ has_metric.astype(np.int64)
    tau = _divide(numerator[0], denominator[0])
    tau[models < min_models] = np.ma.masked
    return TauMatrix(tau, models)


def tau_b_interval(
    values: FloatArray, present: BoolArray | None = None, *, samples: int = 10_000, seed: int = 0, level: float = 0.95
) -> tuple[MaskedFloats, MaskedFloats]:
    """Percentile bootstrap intervals of every tau, drawing models with replacement (efron1993introduction, ch. 13).

    A model drawn twice is tied with itself in every metric, and tau-b ignores pairs tied in both lists, so a replicate is a
    weighted sum with weights w_i w_j. Replicates with undefined tau are dropped; if these are more than half, the interval is
    masked. Models are not a random sample, so the interval shows how much tau depends on the choice of models.

    >>> few = np.array([[1.0, 1], [2, 3], [3, 2], [4, 4], [5, 5]])
    >>> low, high = tau_b_interval(few, samples=2000)
    >>> bool(low[0, 1] < tau_b(few).tau[0, 1] <= high[0, 1])
    True
    """
    has_metric = _check_values(values, present)
    if samples < 2:
        raise CrossmatchError(f"samples must be at least 2 for a bootstrap interval (got {samples}); 10000 is usual.")
    sign, valid = _pair_signs(values, has_metric)
    n = len(values)
    first, second = np.triu_indices(n, 1)
    rng = np.random.default_rng(seed)
    replicates = []
    for start in range(0, samples, REPLICATES_PER_BLOCK):
        times = rng.multinomial(n, np.full(n, 1 / n), size=min(REPLICATES_PER_BLOCK, samples - start)).astype(np.float64)
        replicates.append(_divide(*_products(sign, valid, times[:, first] * times[:, second])).filled(np.nan))
    taus = np.concatenate(replicates)
    undefined = np.isnan(taus).mean(axis=0) > 0.5
    defined = np.where(undefined, 0.0, taus)  # all-NaN columns would warn
    low, high = np.nanquantile(defined, [(1 - level) / 2, (1 + level) / 2], axis=0)
    return np.ma.MaskedArray(low, undefined), np.ma.MaskedArray(high, undefined)


def tau_b_p_values(values: FloatArray, present: BoolArray | None = None) -> MaskedFloats:
    """Two-sided p-value of every tau under no association: exact without ties, else Kendall's normal approximation.

    Source: kendall1945treatment, as in `scipy.stats.kendalltau`.

    >>> tau_b_p_values(np.arange(8.0).reshape(4, 2))[0, 1].round(4)       # 2 of the 4! orders are as extreme
    np.float64(0.0833)
    """
    from scipy.stats import kendalltau  # slow to import

    has_metric = _check_values(values, present)
    undefined = np.ma.getmaskarray(tau_b(values, has_metric).tau)
    p = np.zeros(undefined.shape)
    for a, b in zip(*np.nonzero(np.triu(~undefined)), strict=True):
        common = has_metric[:, a] & has_metric[:, b]
        p[a, b] = p[b, a] = kendalltau(values[common, a], values[common, b]).pvalue
    return np.ma.MaskedArray(p, undefined)


def _check_values(values: FloatArray, present: BoolArray | None) -> BoolArray:
    has_metric = np.ones(values.shape, dtype=bool) if present is None else present
    if values.ndim != 2 or has_metric.shape != values.shape:
        raise CrossmatchError(
            f"values and present must both be models x metrics (got shapes {values.shape} and {has_metric.shape})."
        )
    require_finite(values[has_metric], "values of metrics", "Mark metrics that a model does not have as not present.")
    return has_metric


def _pair_signs(values: FloatArray, has_metric: BoolArray) -> tuple[FloatArray, FloatArray]:
    """S and V: for every two models and each metric the sign of the difference, and whether both have the metric."""
    first, second = np.triu_indices(len(values), 1)
    valid = (has_metric[first] & has_metric[second]).astype(np.float64)
    filled = np.where(has_metric, values, 0.0)
    return np.sign(filled[first] - filled[second]) * valid, valid


def _products(sign: FloatArray, valid: FloatArray, weight: FloatArray) -> tuple[FloatArray, FloatArray]:
    """C - D and (C + D + T_a)(C + D + T_b) for each row of weights, shape (rows, metrics, metrics)."""
    metrics = sign.shape[1]
    a, b = np.triu_indices(metrics)
    agree = weight @ (sign[:, a] * sign[:, b])
    ordered = (weight @ (sign[:, a] ** 2 * valid[:, b])) * (weight @ (sign[:, b] ** 2 * valid[:, a]))
    numerator, denominator = np.zeros((2, len(weight), metrics, metrics))
    for square, flat in ((numerator, agree), (denominator, ordered)):
        square[:, a, b] = square[:, b, a] = flat
    return numerator, denominator


def _divide(numerator: FloatArray, denominator: FloatArray) -> MaskedFloats:
    undefined = denominator == 0
    return np.ma.MaskedArray(numerator / np.sqrt(np.where(undefined, 1.0, denominator)), undefined)
