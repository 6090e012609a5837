"""A logistic classifier without a constant, and parts for its cross-validation that do not depend on the order of anything."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import optimize, special

from crossmatch.core.arrays import FloatArray, IntArray

PENALTY = 1.0  # on the squared weights


def parts(groups: Sequence[str], folds: int) -> IntArray:
    """The part that each group belongs to, by a hash of its name.

    >>> parts(["a", "b", "a"], 5)[[0, 2]].tolist() == [int(parts(["a"], 5)[0])] * 2
    True
    """
    known = {name: int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "big") % folds for name in set(groups)}
    return np.asarray([known[name] for name in groups], dtype=np.int64)


def weights(features: Any) -> FloatArray:
    """The weights under which all rows are likeliest to be on the right side: the minimum of Σ log(1 + e^{-w·x}) + λ/2 |w|².

    >>> bool(weights(np.array([[1.0, 0.0], [1.0, 0.1]]))[0] > 0)
    True
    """

    def loss(w: FloatArray) -> tuple[float, FloatArray]:
        told = np.asarray(features @ w).ravel()
        value = float(np.logaddexp(0.0, -told).sum() + PENALTY / 2 * (w @ w))
        slope = np.asarray(features.T @ -special.expit(-told)).ravel() + PENALTY * w
        return value, slope

    found = optimize.minimize(loss, np.zeros(features.shape[1]), jac=True, method="L-BFGS-B", options={"maxiter": 500})
    return np.asarray(found.x, dtype=np.float64)
