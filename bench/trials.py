"""Three million forced choices of two images and two captions, against the comparisons alone in NumPy.

    python bench/trials.py [--trials 3000000] [--repeat 7]

prints one json line per case. `bare` are the seven metrics over all trials; `intervals` the seven metrics over all trials and in
each of seven categories, all with confidence intervals; `result` is what `crossmatch run` computes from the outcomes: also the mean
over categories and three wider categories. (Sorting and hashing of ids, captions and categories is not timed.) The peer is a script
for I2T, T2I and Group only: four comparisons, three conjunctions, three means. Both start from the same float64 scores in memory.
The limit is the peer's time for `bare`, and ten times that for the others. No two trials share an image.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from crossmatch.data.result import ResultPart
from crossmatch.data.trial_outcomes import Outcomes
from crossmatch.metrics.forced_choice import group_choice, i2t_choice, ineg2t, ipos2t, t2i_choice, tneg2i, tpos2i
from crossmatch.metrics.measurement import evidence_kind
from crossmatch.metrics.metric_table import metric
from crossmatch.metrics.proportions import choice_proportions
from timing import best_of, make_parser, peak_mb, report

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
    (values,) = choice_proportions(Outcomes.from_scores(scores), METRICS)
    return values


def with_intervals(scores, category):
    outcomes = Outcomes.from_scores(scores)
    return choice_proportions(outcomes, METRICS) + choice_proportions(outcomes, METRICS, category, CATEGORIES)


def parts_of(outcomes, category):
    """The parts of a result: all trials, the mean over categories, seven categories, and three wider ones."""
    n = len(outcomes)
    whole = ResultPart(np.zeros(n, dtype="U1"), np.arange(n), outcomes)
    selections = [np.flatnonzero(category == group) for group in range(CATEGORIES)]
    selections += [np.flatnonzero(np.isin(category, wide)) for wide in ((0, 1, 2), (3, 4), (5, 6))]
    categories = [ResultPart(whole.ids[rows], whole.clusters[rows], outcomes.select(rows)) for rows in selections]
    return [whole, replace(whole, folds=category), *categories]


def as_result(scores, parts):
    outcomes = Outcomes.from_scores(scores)  # the same as in `parts`; computed here to be timed
    assert len(outcomes) == len(parts[0].ids)
    metrics = [metric(name) for name in METRICS]
    return [evidence_kind(part).measure(metrics, part, "expected", samples=0, seed=0).by_metric for part in parts]


def main() -> None:
    options = make_parser(__doc__, trials=3_000_000, repeat=7).parse_args()
    rng = np.random.default_rng(0)
    scores = rng.random((options.trials, 2, 2))
    scores[:, [0, 1], [0, 1]] += 0.2  # better than chance
    scores = np.round(scores, 2)  # with some ties
    category = rng.integers(0, CATEGORIES, options.trials)

    values, expected = bare(scores), in_numpy(scores)
    assert [values[name].value for name in ("i2t", "t2i", "group")] == list(expected)
    for group, row in enumerate(with_intervals(scores, category)[1:]):
        scores_of_category = scores[category == group]
        assert all(abs(row[name].value - metric(scores_of_category).mean()) < 1e-12 for name, metric in METRICS.items())
        assert all(row[name].low < row[name].value < row[name].high for name in METRICS)

    parts = parts_of(Outcomes.from_scores(scores), category)
    by_part = as_result(scores, parts)
    assert all(by_part[0][name].value == values[name].value for name in METRICS)
    assert np.isclose(by_part[1]["group"].value, np.mean([by_part[2 + group]["group"].value for group in range(CATEGORIES)]))

    functions = (
        lambda: in_numpy(scores), lambda: bare(scores), lambda: with_intervals(scores, category), lambda: as_result(scores, parts)
    )  # fmt: skip
    numpy_s, bare_s, intervals_s, result_s = best_of(options.repeat, *functions)
    for name, ours_s, limit in (
        ("bare", bare_s, numpy_s),
        ("intervals", intervals_s, 10 * numpy_s),
        ("result", result_s, 10 * numpy_s),
    ):
        more = {"peak_mb": peak_mb(), "limit_ratio": ours_s / limit}
        report(f"trials/{name}", ours_s, "NumPy, three group scores alone", numpy_s, **more)


if __name__ == "__main__":
    main()
