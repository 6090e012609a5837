"""Coverage of the intervals that were tried for means of values in [0, 1]; `make_coverage.py` writes the table.

All take the mean of each cluster, which have equal sizes here, as shape (runs, images).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from unittest import mock

import numpy as np
from scipy.special import expit, logit, ndtr, ndtri, stdtrit

from coverage_simulation import CASES, TRUTHS, Case, MeanCase
from crossmatch.data.arrays import FloatArray
from crossmatch.metrics import proportions
from crossmatch.metrics.proportions import NORMAL_QUANTILE, clustered_mean, proportion
from crossmatch.report.tables import Table

CANDIDATE_IMAGES = 30
DRAWS = 500
PRIORS = (0, 1, 1.5, 3)  # images with the largest variance that are added near 0 and 1
NAMES = ("hit@1, t2i", "mAP@R, i2t", "R-precision, i2t", "MRR, t2i")
Ends = tuple[FloatArray, FloatArray]


def _replicates(values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Bootstrap means and their standard errors, shape (runs, draws)."""
    n = values.shape[1]
    weights = np.random.default_rng(0).multinomial(n, np.full(n, 1 / n), DRAWS).T / n
    means = values @ weights
    return means, np.sqrt(np.maximum((values**2) @ weights - means**2, 0) / (n - 1))


def _standard_error(values: FloatArray) -> FloatArray:
    return np.asarray(values.std(axis=1, ddof=1) / np.sqrt(values.shape[1]))


def percentile(values: FloatArray) -> Ends:
    low, high = np.quantile(_replicates(values)[0], [0.025, 0.975], axis=1)
    return low, high


def bias_corrected(values: FloatArray) -> Ends:
    """BCa (efron1993introduction, ch. 14)."""
    means, _ = _replicates(values)
    centre = values.mean(axis=1, keepdims=True)
    shift = ndtri(np.clip(((means < centre).mean(axis=1) + (means <= centre).mean(axis=1)) / 2, 1 / DRAWS, 1 - 1 / DRAWS))
    residuals = values - centre
    skew = (residuals**3).sum(axis=1) / np.maximum(6 * (residuals**2).sum(axis=1) ** 1.5, 1e-300)
    ordered = np.sort(means, axis=1)
    ends = []
    for z in (-NORMAL_QUANTILE, NORMAL_QUANTILE):
        level = ndtr(shift + (shift + z) / (1 - skew * (shift + z)))
        ends.append(np.take_along_axis(ordered, np.rint(level * (DRAWS - 1)).astype(int)[:, None], axis=1)[:, 0])
    return ends[0], ends[1]


def bootstrap_t(values: FloatArray) -> Ends:
    means, errors = _replicates(values)
    centre = values.mean(axis=1)
    t = np.divide(means - centre[:, None], errors, out=np.zeros_like(means), where=errors > 0)
    low, high = np.quantile(t, [0.025, 0.975], axis=1)
    error = _standard_error(values)
    return np.maximum(0, centre - high * error), np.minimum(1, centre - low * error)


def logit_jackknife(values: FloatArray) -> Ends:
    centre = np.clip(values.mean(axis=1), 1e-9, 1 - 1e-9)
    margin = stdtrit(values.shape[1] - 1, 0.975) * _standard_error(values) / (centre * (1 - centre))
    return expit(logit(centre) - margin), expit(logit(centre) + margin)


METHODS: Mapping[str, Callable[[FloatArray], Ends]] = {
    "percentile bootstrap (before)": percentile,
    "BCa bootstrap": bias_corrected,
    "bootstrap-t": bootstrap_t,
    "jackknife, logit scale": logit_jackknife,
}


def _coverage(case: MeanCase, truth: float, runs: int) -> dict[str, float]:
    skill, exact = case.calibrate(truth)
    rng = np.random.default_rng(round(1000 * truth))
    values = case.draw_values((skill,), CANDIDATE_IMAGES * runs, rng)[0].reshape(runs, CANDIDATE_IMAGES, -1)
    means = values.mean(axis=2)
    ends = {name: method(means) for name, method in METHODS.items()}
    clusters = np.repeat(np.arange(CANDIDATE_IMAGES), values.shape[2])
    size = np.full(CANDIDATE_IMAGES, float(values.shape[2]))
    as_right = [proportion(run.sum(axis=1), size) for run in values]
    ends["Wilson, values as shares of right answers"] = np.array([p.low for p in as_right]), np.array([p.high for p in as_right])
    for prior in PRIORS:
        with mock.patch.object(proportions, "PRIOR_CLUSTERS", prior):
            ours = [clustered_mean([(run.ravel(), clusters)]) for run in values]
        chosen = " (chosen)" if prior == proportions.PRIOR_CLUSTERS else ""
        name = f"Wilson, effective number of values, c = {prior:g}{chosen}"
        ends[name] = np.array([p.low for p in ours]), np.array([p.high for p in ours])
    return {name: 100 * float(np.mean((low <= exact) & (exact <= high))) for name, (low, high) in ends.items()}


def candidate_table(runs: int) -> Table:
    """Lowest and highest coverage over the truths, of each method (row) for each metric (column)."""
    cases: list[Case] = [case for case in CASES if case.name in NAMES]
    columns = [[_coverage(case, truth, runs) for truth in TRUTHS] for case in cases if isinstance(case, MeanCase)]
    rows = []
    for method in columns[0][0]:
        cells = [[coverage[method] for coverage in column] for column in columns]
        rows.append((method, *(f"{min(cell):.1f} to {max(cell):.1f}" for cell in cells)))
    return Table("", (("", *(case.name for case in cases)),), tuple(rows), 1)
