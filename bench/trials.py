"""Three million forced choices of two images and two captions, against the comparisons alone in NumPy.

    python bench/trials.py [--trials 3000000] [--repeat 7]

prints one json line per case. `bare` are the seven metrics over all trials; `intervals` the seven metrics over all trials and in
each of seven categories, all with confidence intervals. The peer is what a script does for I2T, T2I and Group alone: four
comparisons, three conjunctions, three means. Both start from the same float64 scores in memory. The limits: no slower than the
peer, and ten times the peer. Every trial has images of its own, so that no two depend on each other.
"""

from __future__ import annotations

import argparse
import json
import resource
import time

import numpy as np

from crossmatch.core.outcomes import Outcomes
from crossmatch.metrics.choice import group_choice, i2t_choice, ineg2t, ipos2t, t2i_choice, tneg2i, tpos2i
from crossmatch.metrics.proportion import choice_shares

METRICS = {
    "i2t": i2t_choice, "t2i": t2i_choice, "group": group_choice, "ipos2t": ipos2t, "ineg2t": ineg2t, "tpos2i": tpos2i,
    "tneg2i": tneg2i,
}  # fmt: skip
CATEGORIES = 7


def in_numpy(s):
    i2t = (s[:, 0, 0] > s[:, 1, 0]) & (s[:, 1, 1] > s[:, 0, 1])
    t2i = (s[:, 0, 0] > s[:, 0, 1]) & (s[:, 1, 1] > s[:, 1, 0])
    return i2t.mean(), t2i.mean(), (i2t & t2i).mean()


def bare(scores):
    (found,) = choice_shares(Outcomes.of(scores), list(METRICS))
    return found


def with_intervals(scores, category):
    outcomes = Outcomes.of(scores)
    return choice_shares(outcomes, list(METRICS)) + choice_shares(outcomes, list(METRICS), category, CATEGORIES)


def best_of(repeat: int, *works):
    """The best time of each work; the works take turns, so that a slow moment of the machine meets them all."""
    times = [[] for _ in works]
    for _ in range(repeat):
        for at, work in enumerate(works):
            begun = time.perf_counter()
            work()
            times[at].append(time.perf_counter() - begun)
    return [min(t) for t in times]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=3_000_000)
    parser.add_argument("--repeat", type=int, default=7)
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    scores = rng.random((options.trials, 2, 2))
    scores[:, [0, 1], [0, 1]] += 0.2  # a model that knows something
    scores = np.round(scores, 2)  # and ties now and then
    category = rng.integers(0, CATEGORIES, options.trials)

    found, slow = bare(scores), in_numpy(scores)
    assert [found[name].value for name in ("i2t", "t2i", "group")] == list(slow)
    for group, row in enumerate(with_intervals(scores, category)[1:]):
        mine = scores[category == group]
        assert all(abs(row[name].value - metric(mine).mean()) < 1e-12 for name, metric in METRICS.items())
        assert all(row[name].low < row[name].value < row[name].high for name in METRICS)

    works = (lambda: in_numpy(scores), lambda: bare(scores), lambda: with_intervals(scores, category))
    numpy_s, bare_s, intervals_s = best_of(options.repeat, *works)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    for name, ours, limit in (("bare", bare_s, numpy_s), ("intervals", intervals_s, 10 * numpy_s)):
        line = {"workload": f"trials/{name}", "ours_s": round(ours, 4), "peer": "NumPy, three group scores alone",
                "peer_s": round(numpy_s, 4), "ratio": round(numpy_s / ours, 2), "peak_mb": round(peak),
                "limit_ratio": round(ours / limit, 3)}  # fmt: skip
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
