"""Scores of correct and wrong trials: AUC, its interval, margins, and score files."""

import csv

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special

from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.data.result import Result, ResultPart
from crossmatch.data.trial_outcomes import Outcomes
from crossmatch.data.trials import TrialOutcomes
from crossmatch.evaluation.evaluate import evaluate
from crossmatch.metrics.metric_table import metric
from crossmatch.report.analysis.scores_by_trial_outcome import (
    auc,
    auc_interval,
    confidences,
    margins,
    read_all_scores,
    read_scores,
    split_rows,
    split_scores,
    split_table,
)
from crossmatch.report.tables import format_table


def result(scores, task="trials:mine", options=None, clusters=None):
    values = np.asarray(scores, dtype=np.float64)
    ids = np.asarray([f"t{n}" for n in range(len(values))])
    part = ResultPart(ids, np.arange(len(ids)) if clusters is None else np.asarray(clusters), Outcomes.from_scores(values))
    return Result("m", task, "system|m", options or {}, (), {"": part}, {}, 1000, 0, "expected")


FOUR = result([[[3.0, 1.0]], [[2.0, 1.5]], [[0.0, 1.0]], [[1.0, 1.25]]])  # right, right, wrong, wrong


def write_csv(path, *rows):
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    return path


# The AUC


@given(st.lists(st.tuples(st.integers(0, 4), st.booleans()), min_size=2, max_size=30))
def test_auc_counts_pairs_with_ties_half(trials):
    score, right = np.asarray([s for s, _ in trials], float), np.asarray([r for _, r in trials])
    if right.all() or not right.any():
        return
    pairs = [(a > b) + (a == b) / 2 for a in score[right] for b in score[~right]]
    assert auc(score, right) == pytest.approx(np.mean(pairs))
    assert auc(-score, right) == pytest.approx(1 - auc(score, right))


SAMPLES = 400
LEAST = 0.95 - 3 * (0.95 * 0.05 / SAMPLES) ** 0.5  # three standard errors below what is promised: 0.917


def coverage(truth, draw):
    """How often the interval of a random sample (score, right, clusters) contains the true value."""
    rng = np.random.default_rng(0)
    intervals = [auc_interval(*draw(rng)) for _ in range(SAMPLES)]
    return np.mean([low <= truth <= high for low, high in intervals])


@pytest.mark.parametrize("truth", [0.5, 0.7, 0.9])
@pytest.mark.parametrize(("m", "n"), [(2, 2), (5, 5), (5, 20), (20, 20), (80, 20)])
def test_auc_interval_covers_the_true_value(truth, m, n):
    right = np.arange(m + n) < m
    shift = np.sqrt(2) * special.ndtri(truth)  # of two normal distributions: AUC = Φ(d / √2)
    assert coverage(truth, lambda rng: (rng.normal(size=m + n) + shift * right, right, np.arange(m + n))) >= LEAST


@pytest.mark.parametrize("truth", [0.5, 0.9])
def test_auc_interval_covers_under_ties_and_unequal_variance(truth):
    right = np.arange(60) < 30
    cut = np.asarray([-1.0, 0.0, 1.0])
    distance = np.sqrt(2) * special.ndtri(truth)
    of_right, of_wrong = (np.diff(special.ndtr(np.r_[-np.inf, cut - shift, np.inf])) for shift in (distance, 0.0))
    tied = float((of_right * (np.cumsum(of_wrong) - of_wrong / 2)).sum())
    assert (
        coverage(tied, lambda rng: (np.digitize(rng.normal(size=60) + distance * right, cut) * 1.0, right, np.arange(60))) >= LEAST
    )
    wide = np.sqrt(1 + 4) * special.ndtri(truth)
    unequal = coverage(truth, lambda rng: (rng.normal(size=60) * np.where(right, 2, 1) + wide * right, right, np.arange(60)))
    assert unequal >= LEAST


@pytest.mark.parametrize("truth", [0.5, 0.9])
@pytest.mark.parametrize("cluster_count", [10, 40])
def test_auc_interval_covers_with_clusters(truth, cluster_count):
    clusters = np.repeat(np.arange(cluster_count), 4)
    right = clusters < cluster_count // 2
    shift = np.sqrt(2) * special.ndtri(truth)

    def draw(rng):  # two thirds of the variance are of the cluster
        return (
            np.sqrt(2 / 3) * rng.normal(size=cluster_count)[clusters]
            + np.sqrt(1 / 3) * rng.normal(size=4 * cluster_count)
            + shift * right
        )

    assert coverage(truth, lambda rng: (draw(rng), right, clusters)) >= LEAST
    assert coverage(truth, lambda rng: (draw(rng), right, np.arange(4 * cluster_count))) < 0.9  # as if they were independent


@given(st.integers(0, 10_000), st.integers(2, 40))
def test_auc_interval_contains_the_auc_and_is_symmetric(seed, n):
    rng = np.random.default_rng(seed)
    score, right, clusters = rng.integers(0, 5, n).astype(float), np.arange(n) < rng.integers(1, n), rng.integers(0, n, n)
    low, high = auc_interval(score, right, clusters)
    assert 0 <= low <= auc(score, right) <= high <= 1
    assert high - low > 0.02
    assert auc_interval(-score, right, clusters) == pytest.approx((1 - high, 1 - low))


def test_auc_interval_of_perfect_separation_shrinks_with_more_trials():
    ends = [auc_interval(np.arange(2.0 * n), np.arange(2 * n) >= n, np.arange(2 * n)) for n in (1, 2, 10, 100)]
    assert [high for _, high in ends] == [1.0] * 4
    assert ends[0][0] == pytest.approx(1 / (1 + 1.959964**2))  # of one and one: a single coin, of which it is Wilson's interval
    for n, (q, _) in zip((1, 2, 10, 100), ends, strict=True):  # Hanley and McNeil's variance with Newcombe's N, of n and n
        spread = q * (1 - q) + (n - 1) * ((q / (2 - q) - q * q) + (2 * q * q / (1 + q) - q * q))
        model = q * (1 - q) * (1 + (n - 1) * ((1 - q) / (2 - q) + q / (1 + q))) / n**2
        assert spread / n**2 == pytest.approx(model)
        assert (1 - q) == pytest.approx(1.959964 * model**0.5)
    whole = auc_interval(np.arange(40.0), np.arange(40) >= 20, np.arange(40) // 4)
    assert whole[0] < ends[2][0]  # ten clusters of four trials say less than twenty trials
    assert auc_interval(np.arange(4.0), np.arange(4) > 1, np.zeros(4, int)) == (0.0, 1.0)


# Margins and confidences


@given(st.integers(0, 10_000), st.sampled_from([(1, 2), (2, 1), (2, 2), (1, 4), (3, 3)]))
def test_margin_is_positive_if_the_metric_is_correct(seed, shape):
    outcomes = Outcomes.from_scores(np.random.default_rng(seed).integers(0, 4, (20, *shape)).astype(float))
    names = [name for name in ("i2t", "t2i", "group") if name == "group" or shape[name == "t2i"] > 1]
    for name in names:
        margin, confidence = margins(outcomes, name), confidences(outcomes, name)
        assert ((margin > 0) == (metric(name).values(outcomes) > 0)).all()
        assert (confidence >= 0).all()
        assert confidence[margin > 0] == pytest.approx(margin[margin > 0])


def test_the_confidence_is_best_minus_second_best():
    outcomes = Outcomes.from_scores(np.asarray([[[1.0, 5.0, 4.5]], [[6.0, 2.0, 5.0]]]))
    assert confidences(outcomes, "accuracy").tolist() == [0.5, 1.0]
    assert margins(outcomes, "accuracy").tolist() == [-4.0, 1.0]


def test_default_scores_are_margin_and_confidence():
    margin, confidence = split_scores(FOUR)
    assert (margin.score, margin.right.tolist(), margin.wrong.tolist(), margin.auc) == ("margin", [2.0, 0.5], [-1.0, -0.25], None)
    assert (confidence.score, confidence.right.tolist(), confidence.wrong.tolist(), confidence.auc) == (
        "confidence",
        [2.0, 0.5],
        [1.0, 0.25],
        0.75,
    )


def test_without_scores_there_is_no_margin():
    ids = np.asarray(["t0", "t1"])
    outcomes = TrialOutcomes(ids, Outcomes.from_wins(np.asarray([[True, True], [True, False]]), (1, 2)))
    part = ResultPart(ids, np.arange(2), outcomes.outcomes)
    bare = Result("m", "bison", "s", {}, (), {"": part}, {}, 1000, 0, "expected")
    with pytest.raises(CrossmatchError, match=r"no saved scores, so there is no margin.*--by FILE"):
        split_scores(bare)
    (split,) = split_scores(bare, {"length": {"t0": 3.0, "t1": 2.0}})
    assert split.auc == 1.0


# Other scores


def test_scores_by_trial_in_any_order(tmp_path):
    path = write_csv(tmp_path / "length.csv", ["score", "trial_id", "B"], [1, "t3", 0], [2, "t2", 0], [2, "t1", 0], [4, "t0", 1])
    scores = read_scores(path, FOUR)
    assert list(scores) == ["length", "B"]
    length, b = split_scores(FOUR, scores)
    assert (length.right.tolist(), length.wrong.tolist(), length.auc) == ([4.0, 2.0], [2.0, 1.0], 0.875)
    assert b.auc == 0.75
    lines = format_table(split_table(FOUR, [length])).splitlines()
    assert lines[2].split()[:5] == ["length", "right", "2", "3", "2.5"]
    assert "0.5 means no separation" in lines[-1]
    assert split_rows([length])[0]["wrong"] == {"n": 2, "mean": 1.5, "quartiles": [1.25, 1.5, 1.75]}


def test_scores_by_image_use_the_positive_image(tmp_path):
    bison = evaluate("random", "diorama/bison", size="tiny")
    images = [name.split("~") for name in bison.parts[""].ids.tolist()]
    path = write_csv(
        tmp_path / "n.csv",
        ["image_id", "score"],
        *([image, int(image[-5:])] for image in sorted({x for pair in images for x in pair})),
    )
    scores = read_scores(path, bison)["n"]
    assert scores == {f"{a}~{b}": float(a[-5:]) for a, b in images}


def test_trials_without_a_score_need_partial(tmp_path):
    scores = {"x": {"t0": 1.0, "t3": 0.0}}
    with pytest.raises(CrossmatchError, match=r"2 of 4 trials have no x, the first is 't1'. Add it, or use --partial"):
        split_scores(FOUR, scores)
    (split,) = split_scores(FOUR, scores, partial=True)
    assert (split.right.tolist(), split.wrong.tolist()) == ([1.0], [0.0])
    with pytest.raises(CrossmatchError, match=r"4 of 4 trials have no x, the first is 't0'. Add it.$"):
        split_scores(FOUR, {"x": {}}, partial=True)


@pytest.mark.parametrize("partial", [False, True])
def test_scores_of_unknown_trials_are_an_error(tmp_path, partial):
    scores = {"x": {"t0": 1.0, "t1": 0.0, "t2": 0.0, "t3": 0.0, "T4": 9.0, "t5": 9.0}}
    message = (
        "x: 2 of 6 values are for unknown trials, the first for 'T4'. The result has 4 trials of trials:mine, such as 't0'. Correct"
    )
    with pytest.raises(CrossmatchError, match=message):
        split_scores(FOUR, scores, partial=partial)
    bison = evaluate("random", "diorama/bison", size="tiny")
    path = write_csv(tmp_path / "n.csv", ["image_id", "score"], ["nowhere", 1])
    with pytest.raises(CrossmatchError, match=r"n.csv: no trial of diorama/bison has image_id 'nowhere'; its ids look like '"):
        read_scores(path, bison)


def test_duplicate_score_names_are_an_error(tmp_path):
    (tmp_path / "other").mkdir()
    rows = ["t0", 1, 2]
    a = write_csv(tmp_path / "a.csv", ["trial_id", "x", "y"], rows)
    b = write_csv(tmp_path / "b.csv", ["trial_id", "z", "y"], rows)
    with pytest.raises(CrossmatchError, match=r"a.csv and .*b.csv both have a score 'y'. Rename one"):
        read_all_scores([a, b], FOUR)
    first, second = (write_csv(folder / "c.csv", ["trial_id", "score"], ["t0", 1]) for folder in (tmp_path, tmp_path / "other"))
    with pytest.raises(CrossmatchError, match=r"both have a score 'c' \(a column 'score' is named after its file\)"):
        read_all_scores([first, second], FOUR)
    assert list(read_all_scores([a, first], FOUR)) == ["x", "y", "c"]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([["trial_id"], ["t0"]], "expected the columns trial_id .*; got trial_id and 1 rows"),
        ([["id", "score"], ["t0", 1]], "expected the columns trial_id"),
        ([["trial_id", "score"]], "0 rows"),
        ([["trial_id", "score"], ["t0", "many"]], "line 2: score of trial_id 't0': expected a number, got 'many'"),
        ([["trial_id", "score"], ["t0", "nan"]], "line 2: .* expected a finite number, got nan"),
        ([["trial_id", "score"], ["t0", 1], ["t0", 2]], "line 3: trial_id 't0' occurs twice"),
        ([["trial_id", "score"], ["t0", 1, 2]], "line 2: expected 2 cells, got 3"),
        ([["trial_id", "a", "a"], ["t0", 1, 2]], "two columns 'a'"),
        ([["trial_id", "score", "x"], ["t0", 1, 2]], "'score' is named after the file, but there is a column 'x'"),
    ],
)
def test_invalid_score_files_are_an_error(tmp_path, rows, message):
    with pytest.raises(CrossmatchError, match=message):
        read_scores(write_csv(tmp_path / "x.csv", *rows), FOUR)


def test_invalid_splits_are_an_error(tmp_path):
    with pytest.raises(UsageError, match="No file"):
        read_scores(tmp_path / "none.csv", FOUR)
    with pytest.raises(UsageError, match="Use scores by trial_id"):
        read_scores(write_csv(tmp_path / "x.csv", ["image_id", "score"], ["a", 1]), FOUR)
    with pytest.raises(UsageError, match="i2t does not apply to the trials of trials:mine"):
        split_scores(FOUR, name="i2t")
    with pytest.raises(CrossmatchError, match="All 2 trials with margin are correct"):
        split_scores(result([[[1.0, 0.0]], [[1.0, 0.0]]]))
    with pytest.raises(UsageError, match="has no trials"):
        split_scores(evaluate("random", "diorama/retrieval", size="tiny", samples=2))


def test_metric_decides_which_trials_are_correct():
    both = result([[[3.0, 1.0], [0.0, 2.0]], [[3.0, 4.0], [0.0, 5.0]], [[1.0, 2.0], [3.0, 0.0]]])
    assert [len(split.right) for split in split_scores(both)] == [1, 1]  # by group
    assert [len(split.right) for split in split_scores(both, name="i2t")] == [2, 2]
