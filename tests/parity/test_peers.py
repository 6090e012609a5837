"""Numbers equal those of trec_eval, scikit-learn and SciPy where the definitions are the same."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossmatch.metrics.metric_table import metric
from crossmatch.metrics.paired_tests import cluster_t_test
from crossmatch.metrics.proportions import clustered_mean
from crossmatch.metrics.retrieval import first_rank_cdf
from crossmatch.ranking.ranks import Ranks, rank

DOUBLE = 1e-12  # the same sums in another order


def problem(seed, queries=12, gallery=40, grades=1, levels=None):
    """Random grades, at least one positive per query; distinct scores unless `levels` limits them."""
    rng = np.random.default_rng(seed)
    relevance = rng.integers(0, grades + 1, (queries, gallery)) * (
        rng.random((queries, gallery)) < rng.uniform(0.02, 0.6, (queries, 1))
    )
    relevance[np.arange(queries), rng.integers(0, gallery, queries)] = 1
    if levels is None:
        scores = np.array([rng.permutation(gallery) for _ in range(queries)], dtype=float)
    else:
        scores = rng.integers(0, levels, (queries, gallery)).astype(float)
    return scores, relevance


# trec_eval


def by_trec_eval(scores, relevance, measures):
    pytrec_eval = pytest.importorskip("pytrec_eval", reason="pip install pytrec_eval-terrier")
    judged = {f"q{q}": {f"d{c}": int(g) for c, g in enumerate(line)} for q, line in enumerate(relevance)}
    run = {f"q{q}": {f"d{c}": float(s) for c, s in enumerate(line)} for q, line in enumerate(scores)}
    values = pytrec_eval.RelevanceEvaluator(judged, measures).evaluate(run)
    return [values[f"q{q}"] for q in range(len(scores))]


@pytest.mark.parametrize("grades", [1, 3])
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(
    ("ours", "measure", "theirs"),
    [
        ("precision@1", "P.1", "P_1"),
        ("precision@5", "P.5", "P_5"),
        ("precision@60", "P.60", "P_60"),
        ("recall@5", "recall.5", "recall_5"),
        ("recall@100", "recall.100", "recall_100"),
        ("hit@1", "success.1", "success_1"),
        ("hit@5", "success.5", "success_5"),
        ("hit@10", "success.10", "success_10"),
        ("ndcg@5", "ndcg_cut.5", "ndcg_cut_5"),
        ("ndcg@10", "ndcg_cut.10", "ndcg_cut_10"),
        ("ndcg@1000", "ndcg_cut.1000", "ndcg_cut_1000"),
        ("ndcg@40", "ndcg", "ndcg"),
        ("r-precision", "Rprec", "Rprec"),
        ("mrr", "recip_rank", "recip_rank"),
    ],
)
def test_values_without_ties_equal_trec_eval(ours, measure, theirs, seed, grades):
    scores, relevance = problem(seed, grades=grades)
    peer = [line[theirs] for line in by_trec_eval(scores, relevance, {measure})]
    assert metric(ours).values(rank(scores, relevance)) == pytest.approx(peer, abs=DOUBLE)


@pytest.mark.parametrize("seed", range(6))
def test_map_at_r_equals_average_precision_cut_at_r(seed):
    """trec_eval's `map_cut_k` divides by the number of positives too; its k is taken anew for each query."""
    scores, relevance = problem(seed)
    values = metric("map@r").values(rank(scores, relevance))
    counts = (relevance > 0).sum(axis=1)
    lines = by_trec_eval(scores, relevance, {"map_cut." + ",".join(map(str, sorted(set(counts.tolist()))))})
    assert values == pytest.approx([line[f"map_cut_{r}"] for line, r in zip(lines, counts, strict=True)], abs=DOUBLE)


@pytest.mark.parametrize("seed", range(6))
def test_map_at_r_is_at_most_average_precision(seed):
    """If all positives come first, both are 1; otherwise mAP@R leaves out what comes after R and is at most trec_eval's map."""
    scores, relevance = problem(seed)
    values = metric("map@r").values(rank(scores, relevance))
    peer = np.array([line["map"] for line in by_trec_eval(scores, relevance, {"map"})])
    assert (values <= peer + DOUBLE).all()
    assert metric("map@r").values(rank(relevance, relevance)) == pytest.approx(np.ones(len(relevance)))


def test_trec_eval_breaks_ties_by_name():
    """A tie between a positive and a negative: trec_eval takes the later name first; renaming changes its answer, not ours."""
    pytrec_eval = pytest.importorskip("pytrec_eval", reason="pip install pytrec_eval-terrier")
    answers = set()
    for good, bad in (("a", "b"), ("b", "a")):
        theirs = pytrec_eval.RelevanceEvaluator({"q": {good: 1, bad: 0}}, {"P.1"}).evaluate({"q": {good: 0.5, bad: 0.5}})
        answers.add(theirs["q"]["P_1"])
    assert answers == {0.0, 1.0}
    assert metric("precision@1").values(rank([[0.5, 0.5]], [[1, 0]])) == [0.5]


# scikit-learn


@given(st.integers(0, 2**32 - 1), st.integers(1, 6), st.sampled_from([1, 5, 10, 15, 40]))
def test_ndcg_with_ties_equals_scikit_learn(seed, levels, k):
    sklearn = pytest.importorskip("sklearn.metrics", reason="pip install scikit-learn")
    scores, relevance = problem(seed, queries=3, gallery=15, grades=3, levels=levels)
    ours = metric(f"ndcg@{k}").values(rank(scores, relevance))
    peer = [sklearn.ndcg_score(relevance[[q]], scores[[q]], k=k, ignore_ties=False) for q in range(3)]
    assert ours == pytest.approx(peer, abs=DOUBLE)


@pytest.mark.parametrize("k", [1, 3, 10])
@pytest.mark.parametrize("seed", range(4))
def test_hits_of_one_positive_equal_scikit_learn(seed, k):
    sklearn = pytest.importorskip("sklearn.metrics", reason="pip install scikit-learn")
    scores, _ = problem(seed, queries=50, gallery=20)
    right = np.random.default_rng(seed).integers(0, 20, 50)
    ours = metric(f"hit@{k}").summarise(rank(scores, np.eye(20)[right]))
    assert ours == pytest.approx(sklearn.top_k_accuracy_score(right, scores, k=k, labels=range(20)), abs=DOUBLE)


@pytest.mark.parametrize("seed", range(4))
def test_reciprocal_rank_of_one_positive_equals_scikit_learn(seed):
    sklearn = pytest.importorskip("sklearn.metrics", reason="pip install scikit-learn")
    scores, _ = problem(seed, queries=50, gallery=20)
    relevance = np.eye(20)[np.random.default_rng(seed).integers(0, 20, 50)]
    peer = sklearn.label_ranking_average_precision_score(relevance, scores)
    assert metric("mrr").summarise(rank(scores, relevance)) == pytest.approx(peer, abs=DOUBLE)


# SciPy


@given(st.integers(0, 2**32 - 1), st.integers(1, 8))
def test_ranks_equal_rankdata(seed, levels):
    stats = pytest.importorskip("scipy.stats")
    scores, relevance = problem(seed, queries=3, gallery=12, levels=levels)
    ranks = rank(scores, relevance)
    for q in range(3):
        positives = slice(ranks.start[q], ranks.start[q + 1])
        good = relevance[q] > 0
        assert (ranks.above[positives] + 1).tolist() == sorted(stats.rankdata(-scores[q], "min")[good].tolist())
        assert sorted((ranks.above + ranks.tie_size)[positives].tolist()) == sorted(
            stats.rankdata(-scores[q], "max")[good].tolist()
        )


@given(st.integers(0, 2**32 - 1), st.integers(1, 8))
def test_mean_rank_of_one_positive_equals_rankdata(seed, levels):
    stats = pytest.importorskip("scipy.stats")
    scores, _ = problem(seed, queries=4, gallery=12, levels=levels)
    right = np.random.default_rng(seed).integers(0, 12, 4)
    ours = metric("mean-rank").values(rank(scores, np.eye(12)[right]))
    assert ours == pytest.approx([stats.rankdata(-scores[q], "average")[right[q]] for q in range(4)], abs=DOUBLE)


@pytest.mark.parametrize(
    ("negatives", "positives"), [(5, 1), (100, 5), (300, 64), (300, 65), (24_000, 70), (24_000, 1000), (3, 500)]
)
def test_hits_of_a_constant_scorer_are_hypergeometric(negatives, positives):
    """P(no positive in k draws without replacement). Both sides go by logarithms of factorials, hence 1e-9."""
    stats = pytest.importorskip("scipy.stats")
    total = negatives + positives
    for k in (1, 2, 5, 10, 100, total // 2, total):
        if k > total:
            continue
        peer = 1 - stats.hypergeom(total, positives, k).pmf(0)
        ours = metric(f"hit@{k}").summarise(Ranks.all_tied([positives], total))
        assert ours == pytest.approx(peer, abs=1e-9)
        assert first_rank_cdf(np.array([7]), np.array([negatives]), np.array([positives]), k + 7)[0] == pytest.approx(
            peer, abs=1e-9
        )


def test_interval_of_a_mean_is_close_to_scipys_bootstrap():
    """BCa of 20,000 replicates of 80 values in the middle of [0, 1], where it needs no correction: within a fifth of an error."""
    stats = pytest.importorskip("scipy.stats")
    values = np.random.default_rng(0).random(80)
    ours = clustered_mean([(values, np.arange(80))])
    peer = stats.bootstrap((values,), np.mean, n_resamples=20_000, method="BCa", rng=np.random.default_rng(1)).confidence_interval
    error = values.std() / np.sqrt(80)
    assert (ours.low, ours.high) == pytest.approx((peer.low, peer.high), abs=error / 5)


@pytest.mark.parametrize("shift", [0.0, 0.1, 0.2, 0.4])
def test_paired_test_is_close_to_students(shift):
    """Student's paired test; ours has one more image without a difference in the variance, one two-hundredth of it."""
    stats = pytest.importorskip("scipy.stats")
    rng = np.random.default_rng(5)
    first = rng.normal(size=200)
    second = first + shift + rng.normal(size=200)
    gap = second - first
    ours = cluster_t_test(float(gap.mean()), (gap - gap.mean()) / 200, np.arange(200), max_abs=np.inf)
    peer = stats.ttest_rel(second, first)
    ends = peer.confidence_interval()
    assert ours.p == pytest.approx(peer.pvalue, abs=0.005)
    assert (ours.low, ours.high) == pytest.approx((ends.low, ends.high), abs=0.005)
