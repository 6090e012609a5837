"""Three million forced choices of two images and two captions, against the comparisons alone in NumPy.

    python bench/trials.py [--trials 3000000] [--repeat 7]

prints one json line per case. `bare` are the seven metrics over all trials; `intervals` the seven metrics over all trials and in
each of seven categories, all with confidence intervals; `result` is the same as `crossmatch run` does it once the outcomes of
every category are at hand, with the mean over categories and three wider categories besides. (Ids, captions and categories are
texts; sorting and hashing three million of them takes seconds and is not counted.) The peer is what a script does for I2T, T2I and
Group alone: four comparisons, three conjunctions, three means. Both start from the same float64 scores in memory. The limits: no
slower than the peer, and ten times the peer. Every trial has images of its own, so that no two depend on each other.
"""

from __future__ import annotations

import argparse
import json
import resource
from dataclasses import replace

import numpy as np

from crossmatch.core.outcomes import Outcomes
from crossmatch.core.result import Part
from crossmatch.metrics.choice import group_choice, i2t_choice, ineg2t, ipos2t, t2i_choice, tneg2i, tpos2i
from crossmatch.metrics.measure import measure
from crossmatch.metrics.proportion import choice_shares
from crossmatch.metrics.significance import Draws
from crossmatch.metrics.table import metric
from timing import best_of

METRICS = {
    "i2t": i2t_choice, "t2i": t2i_choice, "group": group_choice, "ipos2t": ipos2t, "ineg2t": ineg2t, "tpos2i": tpos2i,
    "tneg2i": tneg2i,
}  # fmt: skip
CATEGORIES = 7
NO_DRAWS = Draws.of(np.zeros(1, dtype=np.int64), 2)  # shares of trials need none


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


def parts_of(outcomes, category):
    """All trials, the mean over categories, seven categories, and three wider ones, as a result has them."""
    n = len(outcomes)
    whole = Part(np.zeros(n, dtype="U1"), np.arange(n), outcomes)
    chosen = [np.flatnonzero(category == group) for group in range(CATEGORIES)]
    chosen += [np.flatnonzero(np.isin(category, wide)) for wide in ((0, 1, 2), (3, 4), (5, 6))]
    narrow = [Part(whole.ids[which], whole.clusters[which], outcomes.chosen(which)) for which in chosen]
    return [whole, replace(whole, folds=category), *narrow]


def as_result(scores, parts):
    outcomes = Outcomes.of(scores)  # those of the parts were made of the same scores; the pass is counted here
    assert len(outcomes) == len(parts[0].ids)
    return [measure([metric(name) for name in METRICS], part, NO_DRAWS, "expected") for part in parts]


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

    parts = parts_of(Outcomes.of(scores), category)
    same = as_result(scores, parts)
    assert all(same[0][name].value == found[name].value for name in METRICS)
    assert np.isclose(same[1]["group"].value, np.mean([same[2 + group]["group"].value for group in range(CATEGORIES)]))

    works = (
        lambda: in_numpy(scores), lambda: bare(scores), lambda: with_intervals(scores, category), lambda: as_result(scores, parts)
    )  # fmt: skip
    numpy_s, bare_s, intervals_s, result_s = best_of(options.repeat, *works)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    for name, ours, limit in (
        ("bare", bare_s, numpy_s),
        ("intervals", intervals_s, 10 * numpy_s),
        ("result", result_s, 10 * numpy_s),
    ):
        line = {"workload": f"trials/{name}", "ours_s": round(ours, 4), "peer": "NumPy, three group scores alone",
                "peer_s": round(numpy_s, 4), "ratio": round(numpy_s / ours, 2), "peak_mb": round(peak),
                "limit_ratio": round(ours / limit, 3)}  # fmt: skip
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
