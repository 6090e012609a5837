"""Another score on right and wrong trials: the AUC, its interval, the model's own margin, and files that are refused."""

import csv

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossmatch.core.errors import CrossmatchError, WrongWords
from crossmatch.core.outcomes import Outcomes
from crossmatch.core.result import Part, Result
from crossmatch.core.trials import TrialOutcomes
from crossmatch.metrics.choice import ASKED
from crossmatch.metrics.table import metric
from crossmatch.report.distribution import apart, apart_table, as_rows, auc, auc_interval, confidences, margins, read_scores
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


def test_the_interval_covers_what_it_says_and_widens_with_clusters():
    rng = np.random.default_rng(0)
    inside = 0
    for n in range(60):
        right = rng.random(200) < 0.7
        score = rng.normal(size=200) + 0.8 * right  # the true AUC of two normal distributions is Φ(0.8 / √2) = 0.714
        low, high = auc_interval(score, right, np.arange(200), samples=300, seed=n)
        inside += low <= 0.714 <= high
    assert inside >= 52  # at 95 %, fewer than 52 of 60 happen in 3 of 1,000 such tests
    wide = auc_interval(np.repeat(score[:50], 4), np.repeat(right[:50], 4), np.repeat(np.arange(50), 4), samples=300)
    narrow = auc_interval(np.repeat(score[:50], 4), np.repeat(right[:50], 4), np.arange(200), samples=300)
    assert wide[1] - wide[0] > 1.5 * (narrow[1] - narrow[0])


def test_the_interval_is_seeded_and_a_single_cluster_tells_nothing():
    score, right = np.asarray([1.0, 2, 3, 4]), np.asarray([False, True, False, True])
    assert auc_interval(score, right, np.arange(4), seed=3) == auc_interval(score, right, np.arange(4), seed=3)
    assert auc_interval(score, right, np.zeros(4, int)) == (0.0, 1.0)


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
    path = written(
        tmp_path / "length.csv", ["score", "trial_id", "B"], [1, "t3", 0], [2, "t2", 0], [2, "t1", 0], [4, "t0", 1], [9, "x", 9]
    )
    scores = read_scores(path, FOUR)
    assert list(scores) == ["length", "B"]
    length, b = apart(FOUR, scores, samples=50)
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
    with pytest.raises(CrossmatchError, match="none of the ids is that of a trial"):
        apart(FOUR, {"x": {"other": 1.0}}, partial=True)


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
