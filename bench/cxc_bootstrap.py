"""The bootstrap correlation of CxC on its three test files, 1,000 samples each, against the loops in common use.

    python bench/cxc_bootstrap.py [--repeat 5] [--pandas-samples 2]

prints one json line per case. The model's scores are the ratings plus noise. The peers draw half of the queries and one pair for
each in every sample, as we do: the first with arrays and `scipy.stats.spearmanr`; the second with pandas' grouped sampling,
measured on a few samples and extrapolated to 1,000. The ratings are in `$CROSSMATCH_DATA` (or ../shared/data).
"""

from __future__ import annotations

import csv
import tracemalloc

import numpy as np
from scipy.stats import spearmanr

from crossmatch.metrics.correlation.correlation_with_ratings import bootstrap_spearman
from timing import DATA, best_of, make_parser, report

SAMPLES = 1000
CASES = (("sts", 0, 1.1), ("sis", 0, 1.2), ("sits", 0, 0.7), ("sits", 1, 1.0))  # file, the column of the query, noise


def ratings(name: str, query_column: int):
    """Query and item of each pair as numbers, and the rating, sorted by query and item."""
    with (DATA / "cxc" / f"{name}_test.csv").open(newline="") as f:
        head, *rows = csv.reader(f)
    query, item = (np.unique([r[c] for r in rows], return_inverse=True)[1] for c in (query_column, 1 - query_column))
    order = np.lexsort((item, query))
    return query[order], item[order], np.array([float(r[2]) for r in rows])[order], head[query_column]


def scipy_loop(start, count, human, model, samples: int, seed: int = 0):
    """A few array operations and SciPy's coefficient for each sample."""
    rng = np.random.default_rng(seed)
    values = np.empty(samples)
    for n in range(samples):
        chosen = rng.choice(len(count), len(count) // 2, replace=False, shuffle=False)
        pairs = start[chosen] + (rng.random(len(chosen)) * count[chosen]).astype(np.int64)
        values[n] = spearmanr(human[pairs], model[pairs]).statistic
    return values


def pandas_loop(frame, samples: int, seed: int = 0):
    rng = np.random.default_rng(seed)
    values = []
    for _ in range(samples):
        queries = frame["query"].drop_duplicates().sample(frac=0.5, random_state=rng)
        pairs = frame[frame["query"].isin(queries)].groupby("query").sample(1, random_state=rng)
        values.append(pairs["human"].corr(pairs["model"], method="spearman"))
    return np.array(values)


def peak_of(function):
    """The result of a function, and its peak memory in MB, including that of NumPy's arrays."""
    tracemalloc.start()
    result = function()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return result, peak / 2**20


def main() -> None:
    options = make_parser(__doc__, repeat=5, pandas_samples=2).parse_args()
    for name, query_column, noise in CASES:
        query, item, human, side = ratings(name, query_column)
        model = human + noise * np.random.default_rng(0).standard_normal(len(human))
        count = np.bincount(query)
        start = np.cumsum(count) - count
        shuffle = np.random.default_rng(1).permutation(len(query))  # ours sorts for itself; the peers get sorted pairs
        pairs = query[shuffle], human[shuffle], model[shuffle]

        def run_ours():
            return bootstrap_spearman(*pairs, samples=SAMPLES, item=item[shuffle])

        ours, peak = peak_of(run_ours)
        theirs = scipy_loop(start, count, human, model, 200)
        tolerance = 5 * np.hypot(ours.std() / np.sqrt(SAMPLES), theirs.std() / np.sqrt(200))
        assert abs(ours.mean() - theirs.mean()) < tolerance, (ours.mean(), theirs.mean())

        ours_s, scipy_s = best_of(options.repeat, run_ours, lambda: scipy_loop(start, count, human, model, SAMPLES))
        workload = f"cxc_bootstrap/{name}-by-{side.rstrip('12')}"
        report(workload, ours_s, "NumPy + scipy.stats.spearmanr loop", scipy_s, peak_mb=peak)
        if options.pandas_samples:
            import pandas

            frame, few = pandas.DataFrame({"query": query, "human": human, "model": model}), options.pandas_samples
            pandas_s = best_of(1, lambda: pandas_loop(frame, few))[0] * SAMPLES / few
            peer = f"pandas groupby-sample loop, extrapolated from {few} samples"
            report(workload, ours_s, peer, pandas_s, peak_mb=peak)


if __name__ == "__main__":
    main()
