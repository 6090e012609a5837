"""Another score on right and wrong trials: the AUC, its interval, the model's own margin, and files that are refused."""

import csv

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special

from crossmatch.core.errors import CrossmatchError, WrongWords
from crossmatch.core.outcomes import Outcomes
from crossmatch.core.result import Part, Result
from crossmatch.core.trials import TrialOutcomes
from crossmatch.metrics.choice import ASKED
from crossmatch.metrics.table import metric
from crossmatch.report.distribution import (
    apart,
    apart_table,
    as_rows,
    auc,
    auc_interval,
    confidences,
    margins,
    read_all_scores,
    read_scores,
)
from crossmatch.report.tables import as_text
from crossmatch.run import evaluate


def result(scores, task="trials:mine", options=None, clusters=None):
    values = np.asarray(scores, dtype=np.float64)
    ids = np.asarray([f"t{n}" for n in range(len(values))])
    part = Part(ids, np.arange(len(ids)) if clusters is None else np.asarray(clusters), Outcomes.of(values))
    return Result("m", task, "system|m", options or {}, (), {"": part}, {}, 1000, 0, "expected")


FOUR = result([[[3.0, 1.0]], [[2.0, 1.5]], [[0.0, 1.0]], [[1.0, 1.25]]])  # right, right, wrong, wrong


def written(path, *rows):
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    return path


# The AUC


@given(st.lists(st.tuples(st.integers(0, 4), st.booleans()), min_size=2, max_size=30))
def test_auc_counts_pairs_with_ties_half(said):
    score, right = np.asarray([s for s, _ in said], float), np.asarray([r for _, r in said])
    if right.all() or not right.any():
        return
    pairs = [(a > b) + (a == b) / 2 for a in score[right] for b in score[~right]]
    assert auc(score, right) == pytest.approx(np.mean(pairs))
    assert auc(-score, right) == pytest.approx(1 - auc(score, right))


SAMPLES = 400
LEAST = 0.95 - 3 * (0.95 * 0.05 / SAMPLES) ** 0.5  # three standard errors below what is promised: 0.917


def covered(truth, draw):
    """How often the interval of a drawn sample (score, right, clusters) holds the truth."""
    rng = np.random.default_rng(0)
    found = [auc_interval(*draw(rng)) for _ in range(SAMPLES)]
    return np.mean([low <= truth <= high for low, high in found])


@pytest.mark.parametrize("truth", [0.5, 0.7, 0.9])
@pytest.mark.parametrize(("m", "n"), [(2, 2), (5, 5), (5, 20), (20, 20), (80, 20)])
def test_the_interval_covers_what_it_says(truth, m, n):
    right = np.arange(m + n) < m
    apart = np.sqrt(2) * special.ndtri(truth)  # of two normal distributions: AUC = Φ(d / √2)
    assert covered(truth, lambda rng: (rng.normal(size=m + n) + apart * right, right, np.arange(m + n))) >= LEAST


@pytest.mark.parametrize("truth", [0.5, 0.9])
def test_the_interval_covers_under_ties_and_unequal_spread(truth):
    right = np.arange(60) < 30
    cut = np.asarray([-1.0, 0.0, 1.0])
    apart = np.sqrt(2) * special.ndtri(truth)
    of_right, of_wrong = (np.diff(special.ndtr(np.r_[-np.inf, cut - shift, np.inf])) for shift in (apart, 0.0))
    tied = float((of_right * (np.cumsum(of_wrong) - of_wrong / 2)).sum())
    assert covered(tied, lambda rng: (np.digitize(rng.normal(size=60) + apart * right, cut) * 1.0, right, np.arange(60))) >= LEAST
    wide = np.sqrt(1 + 4) * special.ndtri(truth)
    unequal = covered(truth, lambda rng: (rng.normal(size=60) * np.where(right, 2, 1) + wide * right, right, np.arange(60)))
    assert unequal >= LEAST


@pytest.mark.parametrize("truth", [0.5, 0.9])
@pytest.mark.parametrize("held", [10, 40])
def test_the_interval_covers_where_trials_share_clusters(truth, held):
    clusters = np.repeat(np.arange(held), 4)
    right = clusters < held // 2
    apart = np.sqrt(2) * special.ndtri(truth)

    def draw(rng):  # two thirds of the variance are of the cluster
        return np.sqrt(2 / 3) * rng.normal(size=held)[clusters] + np.sqrt(1 / 3) * rng.normal(size=4 * held) + apart * right

    assert covered(truth, lambda rng: (draw(rng), right, clusters)) >= LEAST
    assert covered(truth, lambda rng: (draw(rng), right, np.arange(4 * held))) < 0.9  # as if they were independent


@given(st.integers(0, 10_000), st.integers(2, 40))
def test_the_interval_holds_the_auc_has_a_width_and_turns_round(seed, n):
    rng = np.random.default_rng(seed)
    score, right, clusters = rng.integers(0, 5, n).astype(float), np.arange(n) < rng.integers(1, n), rng.integers(0, n, n)
    low, high = auc_interval(score, right, clusters)
    assert 0 <= low <= auc(score, right) <= high <= 1
    assert high - low > 0.02
    assert auc_interval(-score, right, clusters) == pytest.approx((1 - high, 1 - low))


def test_trials_that_a_score_tells_apart_leave_doubt_and_more_of_them_less():
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


# The model's own scores


@given(st.integers(0, 10_000), st.sampled_from([(1, 2), (2, 1), (2, 2), (1, 4), (3, 3)]))
def test_the_margin_is_positive_where_the_metric_is_right(seed, shape):
    outcomes = Outcomes.of(np.random.default_rng(seed).integers(0, 4, (20, *shape)).astype(float))
    names = [name for name in ("i2t", "t2i", "group") if name == "group" or shape[name == "t2i"] > 1]
    for name in names:
        margin, sure = margins(outcomes, name), confidences(outcomes, name)
        assert ((margin > 0) == (metric(name).values(outcomes) > 0)).all()
        assert (sure >= 0).all()
        assert sure[margin > 0] == pytest.approx(margin[margin > 0])
    assert set(names) <= set(ASKED)


def test_the_confidence_is_best_minus_second_best():
    outcomes = Outcomes.of(np.asarray([[[1.0, 5.0, 4.5]], [[6.0, 2.0, 5.0]]]))
    assert confidences(outcomes, "accuracy").tolist() == [0.5, 1.0]
    assert margins(outcomes, "accuracy").tolist() == [-4.0, 1.0]


def test_by_default_margin_and_confidence():
    margin, sure = apart(FOUR)
    assert (margin.score, margin.right.tolist(), margin.wrong.tolist(), margin.auc) == ("margin", [2.0, 0.5], [-1.0, -0.25], None)
    assert (sure.score, sure.right.tolist(), sure.wrong.tolist(), sure.auc) == ("confidence", [2.0, 0.5], [1.0, 0.25], 0.75)


def test_without_scores_there_is_no_margin():
    ids = np.asarray(["t0", "t1"])
    said = TrialOutcomes(ids, Outcomes.from_wins(np.asarray([[True, True], [True, False]]), (1, 2)))
    part = Part(ids, np.arange(2), said.outcomes)
    bare = Result("m", "bison", "s", {}, (), {"": part}, {}, 1000, 0, "expected")
    with pytest.raises(CrossmatchError, match=r"not the scores, so there is no margin.*--by FILE"):
        apart(bare)
    (found,) = apart(bare, {"length": {"t0": 3.0, "t1": 2.0}})
    assert found.auc == 1.0


# Other scores


def test_scores_by_trial_whatever_their_order(tmp_path):
    path = written(tmp_path / "length.csv", ["score", "trial_id", "B"], [1, "t3", 0], [2, "t2", 0], [2, "t1", 0], [4, "t0", 1])
    scores = read_scores(path, FOUR)
    assert list(scores) == ["length", "B"]
    length, b = apart(FOUR, scores)
    assert (length.right.tolist(), length.wrong.tolist(), length.auc) == ([4.0, 2.0], [2.0, 1.0], 0.875)
    assert b.auc == 0.75
    lines = as_text(apart_table(FOUR, [length])).splitlines()
    assert lines[2].split()[:5] == ["length", "right", "2", "3", "2.5"]
    assert "0.5 means that the score does not tell" in lines[-1]
    assert as_rows([length])[0]["wrong"] == {"n": 2, "mean": 1.5, "quartiles": [1.25, 1.5, 1.75]}


def test_scores_by_image_are_those_of_the_positive_one(tmp_path):
    found = evaluate("random", "diorama/bison", size="tiny")
    images = [name.split("~") for name in found.parts[""].ids.tolist()]
    path = written(
        tmp_path / "n.csv", ["image_id", "score"], *([one, int(one[-5:])] for one in sorted({x for pair in images for x in pair}))
    )
    said = read_scores(path, found)["n"]
    assert said == {f"{a}~{b}": float(a[-5:]) for a, b in images}


def test_trials_without_a_score_need_partial(tmp_path):
    scores = {"x": {"t0": 1.0, "t3": 0.0}}
    with pytest.raises(CrossmatchError, match=r"2 of 4 trials have no x; first missing: 't1'. Add it, or say --partial"):
        apart(FOUR, scores)
    (found,) = apart(FOUR, scores, partial=True)
    assert (found.right.tolist(), found.wrong.tolist()) == ([1.0], [0.0])
    with pytest.raises(CrossmatchError, match=r"4 of 4 trials have no x; first missing: 't0'. Add it.$"):
        apart(FOUR, {"x": {}}, partial=True)


@pytest.mark.parametrize("partial", [False, True])
def test_scores_of_strangers_are_refused_always(tmp_path, partial):
    said = {"x": {"t0": 1.0, "t1": 0.0, "t2": 0.0, "t3": 0.0, "T4": 9.0, "t5": 9.0}}
    message = (
        "2 of 6 values of x are of no trial of this result; first: 'T4'. It has 4 trials of trials:mine, such as 't0'. Correct"
    )
    with pytest.raises(CrossmatchError, match=message):
        apart(FOUR, said, partial=partial)
    found = evaluate("random", "diorama/bison", size="tiny")
    path = written(tmp_path / "n.csv", ["image_id", "score"], ["nowhere", 1])
    with pytest.raises(
        CrossmatchError, match=r"n.csv: image_id 'nowhere' is in no trial of diorama/bison; its images are such as '"
    ):
        read_scores(path, found)


def test_two_files_with_one_name_are_refused_by_name(tmp_path):
    (tmp_path / "other").mkdir()
    rows = ["t0", 1, 2]
    a = written(tmp_path / "a.csv", ["trial_id", "x", "y"], rows)
    b = written(tmp_path / "b.csv", ["trial_id", "z", "y"], rows)
    with pytest.raises(CrossmatchError, match=r"a.csv and .*b.csv both have a score called 'y'. Rename one"):
        read_all_scores([a, b], FOUR)
    one, two = (written(folder / "c.csv", ["trial_id", "score"], ["t0", 1]) for folder in (tmp_path, tmp_path / "other"))
    with pytest.raises(CrossmatchError, match=r"both have a score called 'c' \(a column 'score' goes by the name of its file\)"):
        read_all_scores([one, two], FOUR)
    assert list(read_all_scores([a, one], FOUR)) == ["x", "y", "c"]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([["trial_id"], ["t0"]], "has the columns trial_id and 1 rows; expected trial_id"),
        ([["id", "score"], ["t0", 1]], "expected trial_id"),
        ([["trial_id", "score"]], "0 rows"),
        ([["trial_id", "score"], ["t0", "many"]], "line 2: score of trial_id 't0' is 'many', which is not a number"),
        ([["trial_id", "score"], ["t0", "nan"]], "line 2: .* is nan; a finite number"),
        ([["trial_id", "score"], ["t0", 1], ["t0", 2]], "line 3: trial_id 't0' is there twice"),
        ([["trial_id", "score"], ["t0", 1, 2]], "line 2: 3 cells under 2 columns"),
        ([["trial_id", "a", "a"], ["t0", 1, 2]], "two columns called 'a'"),
        ([["trial_id", "score", "x"], ["t0", 1, 2]], "has a column 'x', and its column 'score' goes by that name too"),
    ],
)
def test_bad_files(tmp_path, rows, message):
    with pytest.raises(CrossmatchError, match=message):
        read_scores(written(tmp_path / "x.csv", *rows), FOUR)


def test_what_cannot_be_asked(tmp_path):
    with pytest.raises(WrongWords, match="there is no file"):
        read_scores(tmp_path / "none.csv", FOUR)
    with pytest.raises(WrongWords, match="Give scores by trial_id"):
        read_scores(written(tmp_path / "x.csv", ["image_id", "score"], ["a", 1]), FOUR)
    with pytest.raises(WrongWords, match="i2t says nothing about the trials of trials:mine"):
        apart(FOUR, name="i2t")
    with pytest.raises(CrossmatchError, match="all 2 trials that have margin were answered rightly"):
        apart(result([[[1.0, 0.0]], [[1.0, 0.0]]]))
    with pytest.raises(WrongWords, match="has no trials that are right or wrong"):
        apart(evaluate("random", "diorama/retrieval", size="tiny", samples=2))


def test_what_counts_as_right_can_be_named():
    both = result([[[3.0, 1.0], [0.0, 2.0]], [[3.0, 4.0], [0.0, 5.0]], [[1.0, 2.0], [3.0, 0.0]]])
    assert [len(one.right) for one in apart(both)] == [1, 1]  # by group
    assert [len(one.right) for one in apart(both, name="i2t")] == [2, 2]
