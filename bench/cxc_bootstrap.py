"""The bootstrap correlation of CxC on its three test files, 1,000 samples each, against the loops in common use.

    python bench/cxc_bootstrap.py [--repeat 5] [--pandas-samples 2]

prints one json line per case. The model's scores are the ratings plus noise. The peers draw half of the queries and one pair for
each in every sample, as we do: the first with arrays and `scipy.stats.spearmanr`; the second with pandas' grouped sampling,
measured on a few samples and scaled up to 1,000, as its lines say. The ratings are looked for in $CROSSMATCH_DATA, then beside
the repository.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import tracemalloc
from pathlib import Path

import numpy as np
from scipy.stats import spearmanr

from crossmatch.metrics.correlation import bootstrap_spearman
from timing import best_of

SAMPLES = 1000
DATA = Path(os.environ.get("CROSSMATCH_DATA", Path(__file__).parents[2] / "shared/data")) / "cxc"
CASES = (("sts", 0, 1.1), ("sis", 0, 1.2), ("sits", 0, 0.7), ("sits", 1, 1.0))  # file, the column of the query, noise


def ratings(name: str, query_column: int):
    """The query and the item of each pair as numbers, and the rating; pairs of a query stand together, by item."""
    with (DATA / f"{name}_test.csv").open(newline="") as f:
        head, *rows = csv.reader(f)
    query, item = (np.unique([r[c] for r in rows], return_inverse=True)[1] for c in (query_column, 1 - query_column))
    order = np.lexsort((item, query))
    return query[order], item[order], np.array([float(r[2]) for r in rows])[order], head[query_column]


def scipy_loop(start, count, human, model, samples: int, seed: int = 0):
    """Tight: everything that can be done once is done before; each sample is a few array operations and SciPy's coefficient."""
    rng = np.random.default_rng(seed)
    found = np.empty(samples)
    for at in range(samples):
        chosen = rng.choice(len(count), len(count) // 2, replace=False, shuffle=False)
        pairs = start[chosen] + (rng.random(len(chosen)) * count[chosen]).astype(np.int64)
        found[at] = spearmanr(human[pairs], model[pairs]).statistic
    return found


def pandas_loop(frame, samples: int, seed: int = 0):
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(samples):
        queries = frame["query"].drop_duplicates().sample(frac=0.5, random_state=rng)
        pairs = frame[frame["query"].isin(queries)].groupby("query").sample(1, random_state=rng)
        found.append(pairs["human"].corr(pairs["model"], method="spearman"))
    return np.array(found)


def peak_of(work):
    """What the work returns, and the most memory that it held at a time, in MB: arrays too, since NumPy tells tracemalloc."""
    tracemalloc.start()
    done = work()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return done, peak / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--pandas-samples", type=int, default=2, help="0 leaves pandas out")
    options = parser.parse_args()
    for name, query_column, noise in CASES:
        query, item, human, side = ratings(name, query_column)
        model = human + noise * np.random.default_rng(0).standard_normal(len(human))
        count = np.bincount(query)
        start = np.cumsum(count) - count
        shuffle = np.random.default_rng(1).permutation(len(query))  # ours sorts for itself; the peers get sorted pairs
        given = query[shuffle], human[shuffle], model[shuffle]

        def work():
            return bootstrap_spearman(*given, samples=SAMPLES, item=item[shuffle])

        ours, peak = peak_of(work)
        theirs = scipy_loop(start, count, human, model, 200)
        near = 5 * np.hypot(ours.std() / np.sqrt(SAMPLES), theirs.std() / np.sqrt(200))
        assert abs(ours.mean() - theirs.mean()) < near, (ours.mean(), theirs.mean())

        ours_s, scipy_s = best_of(
            options.repeat,
            work,
            lambda: scipy_loop(start, count, human, model, SAMPLES),
        )
        rows = [{"peer": "NumPy + scipy.stats.spearmanr loop", "peer_s": scipy_s}]
        if options.pandas_samples:
            import pandas

            frame, few = pandas.DataFrame({"query": query, "human": human, "model": model}), options.pandas_samples
            pandas_s = best_of(1, lambda: pandas_loop(frame, few))[0] * SAMPLES / few
            rows.append({"peer": f"pandas groupby-sample loop, extrapolated from {few} samples", "peer_s": pandas_s})
        line = {
            "workload": f"cxc_bootstrap/{name}-by-{side.rstrip('12')}",
            "ours_s": round(ours_s, 3),
            "peak_mb": round(peak, 1),
        }
        for row in rows:
            seconds = {"peer_s": round(row["peer_s"], 3), "ratio": round(row["peer_s"] / ours_s, 1)}
            print(json.dumps(line | row | seconds), flush=True)


if __name__ == "__main__":
    main()
