"""Aggregation of answers: against counting, against loops, and on simulated annotators with known truth."""

from __future__ import annotations

from collections import Counter, defaultdict
from math import log
from statistics import mean, stdev

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossmatch.data.errors import CrossmatchError
from crossmatch.metrics.agreement import vote_aggregation
from crossmatch.metrics.agreement.answer_arrays import Answers
from crossmatch.metrics.agreement.vote_aggregation import dawid_skene, decide_unanimously, majority_vote, mean_answers

answers = st.dictionaries(
    st.tuples(st.integers(0, 8), st.integers(0, 4)), st.integers(0, 2), min_size=1, max_size=35
)  # {(item, person): value}


def as_answers(triples):
    return Answers.from_triples([(item, person, value) for (item, person), value in triples.items()])


def by_item(triples):
    rows = defaultdict(list)
    for (item, _), value in triples.items():
        rows[item].append(value)
    return dict(sorted(rows.items()))


# Counting


@given(answers)
def test_majority_equals_counting_and_keeps_ties(triples):
    result = majority_vote(as_answers(triples))
    rows = by_item(triples)
    assert result.item.tolist() == list(rows)
    for n, row in enumerate(rows.values()):
        counts = Counter(row)
        best = {value for value, times in counts.items() if times == max(counts.values())}
        assert result.is_tied[n] == (len(best) > 1)
        assert result.value.tolist()[n] == (None if len(best) > 1 else best.pop())
        assert {int(v) for v in result.values[result.is_most_frequent[n]]} == {
            v for v in counts if counts[v] == max(counts.values())
        }
        assert result.share[n] == pytest.approx(max(counts.values()) / len(row))
        assert result.answer_counts[n] == len(row)


@given(answers, st.integers(0, 2), st.integers(1, 4))
def test_unanimity_needs_all_and_enough_answers(triples, accepting, needed):
    result = decide_unanimously(as_answers(triples), accepting, needed)
    for n, row in enumerate(by_item(triples).values()):
        assert result.accepted[n] == (set(row) == {accepting} and len(row) >= needed)
        assert result.rejected[n] == (set(row) != {accepting})
        assert result.accepted[n] + result.rejected[n] + result.waiting[n] == 1


def test_no_answers_give_no_decisions():
    assert not len(decide_unanimously(Answers.from_triples([]), 1, 2).accepted)


@given(answers)
def test_means_and_deviations_equal_the_standard_library(triples):
    result = mean_answers(as_answers(triples))
    for n, row in enumerate(by_item(triples).values()):
        assert result.mean[n] == pytest.approx(mean(row))
        assert result.deviation.tolist()[n] == (pytest.approx(stdev(row)) if len(row) > 1 else None)
        assert result.answer_counts[n] == len(row)


def test_deviations_of_large_values_are_precise():
    result = mean_answers(Answers.from_triples([(0, 0, 1e9 + 1), (0, 1, 1e9 + 2), (0, 2, 1e9 + 3)]))
    assert result.deviation[0] == pytest.approx(1.0)


# The model


def one_step(triples, posterior, smoothing):
    """One M-step and one E-step, in loops; the objective too."""
    people, values = sorted({p for _, p in triples}), sorted(set(triples.values()))
    items = sorted(posterior)
    prior = {k: sum(posterior[i][k] for i in items) + smoothing for k in values}
    prior = {k: x / sum(prior.values()) for k, x in prior.items()}
    confusion = {}
    for p in people:
        for k in values:
            row = {
                v: smoothing + sum(posterior[i][k] for (i, q), responses in triples.items() if q == p and responses == v)
                for v in values
            }
            total = sum(row.values())
            confusion[p, k] = {v: x / total if total else 1 / len(values) for v, x in row.items()}
    objective = smoothing * sum(log(x) for row in (prior, *confusion.values()) for x in row.values()) if smoothing else 0.0
    new = {}
    for i in items:
        parts = dict(prior)
        for (j, p), v in triples.items():
            if j == i:
                for k in values:
                    parts[k] *= confusion[p, k][v]
        objective += log(sum(parts.values()))
        new[i] = {k: x / sum(parts.values()) for k, x in parts.items()}
    return new, prior, confusion, objective


compared = answers.filter(lambda triples: len({item for item, _ in triples}) < len(triples))  # some item has two answers


@given(compared, st.sampled_from([0.0, 0.1, 1.0]))
def test_each_step_equals_loops(triples, smoothing):
    try:
        result = dawid_skene(as_answers(triples), smoothing=smoothing, tolerance=1e-4)
    except CrossmatchError:  # these answers would take very long; another test is about that
        return
    values = sorted(set(triples.values()))
    slow = {i: {k: row.count(k) / len(row) for k in values} for i, row in by_item(triples).items()}
    for reached in result.objective:
        slow, prior, confusion, objective = one_step(triples, slow, smoothing)
        assert reached == pytest.approx(objective, abs=1e-6)
    assert result.posterior == pytest.approx(np.array([[row[k] for k in values] for row in slow.values()]), abs=1e-6)
    assert result.prior == pytest.approx([prior[k] for k in values], abs=1e-6)
    for n, p in enumerate(result.person.tolist()):
        assert result.confusion[n] == pytest.approx(np.array([[confusion[p, k][v] for v in values] for k in values]), abs=1e-6)


@given(compared, st.sampled_from([0.0, 0.1, 1.0]))
def test_objective_never_falls_and_shares_sum_to_one(triples, smoothing):
    result = dawid_skene(as_answers(triples), smoothing=smoothing, tolerance=1e-6)
    assert (np.diff(result.objective) >= -1e-9 * np.maximum(1, np.abs(result.objective[1:]))).all()
    for shares in (result.posterior, result.confusion, result.prior):
        assert np.isfinite(shares).all()
        assert (shares >= 0).all()
        assert shares.sum(axis=-1) == pytest.approx(1)
    assert (result.accuracy <= 1 + 1e-12).all()


def simulated(rng, items, people, answers_each, confusion):
    """Items of equally frequent values, each answered by `answers_each` people with errors `confusion[person, true, answer]`."""
    k = confusion.shape[1]
    true = rng.integers(0, k, items)
    who = np.argsort(rng.random((items, people)), axis=1)[:, :answers_each]
    reach = confusion[who, true[:, None]].cumsum(axis=2)
    responses = (rng.random(who.shape)[:, :, None] > reach[:, :, :-1]).sum(axis=2)
    return true, Answers(np.repeat(np.arange(items), answers_each), who.ravel(), responses.ravel())


def errs(right, k):
    """Confusion matrices of people with these accuracies and uniform errors."""
    right = np.asarray(right)[:, None, None]
    return np.where(np.eye(k, dtype=bool), right, (1 - right) / (k - 1))


def expected_accuracy(result, true):
    """Accuracy, with tied values chosen at random."""
    best = (
        result.is_most_frequent
        if hasattr(result, "is_most_frequent")
        else result.posterior >= result.posterior.max(axis=1, keepdims=True) - 1e-9
    )
    return float((best[np.arange(len(true)), true] / best.sum(axis=1)).mean())


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_parameters_are_recovered(smoothing):
    rng = np.random.default_rng(0)
    confusion = rng.dirichlet(np.ones(3), (7, 3)) * 0.4 + np.eye(3) * 0.6  # different errors for each person
    true, responses = simulated(rng, 4000, 7, 7, confusion)
    result = dawid_skene(responses, smoothing=smoothing)
    met = np.bincount(true)  # items of each true value
    error = np.sqrt(confusion * (1 - confusion) / met[None, :, None])
    far = np.abs(result.confusion - confusion) / error
    assert far.max() < 4.5  # of 63 numbers, with a little more error as the truth is not known
    assert 0.7 < np.sqrt(np.mean(far**2)) < 1.4
    assert result.prior == pytest.approx(met / 4000, abs=0.02)
    assert (result.value == true).mean() > 0.97
    # a posterior of 90 % is right nine times in ten
    sure = result.posterior.max(axis=1)
    assert (result.value == true).mean() == pytest.approx(sure.mean(), abs=3 * np.sqrt((sure * (1 - sure)).sum()) / 4000)


@pytest.mark.parametrize("seed", range(3))
def test_dawid_skene_beats_majority_with_random_annotators(seed):
    rng = np.random.default_rng(seed)
    right = np.r_[np.full(5, 1 / 3), rng.uniform(0.65, 0.95, 5)]
    true, responses = simulated(rng, 300, 10, 5, errs(right, 3))
    result = dawid_skene(responses)
    assert expected_accuracy(result, true) > expected_accuracy(majority_vote(responses), true) + 0.05
    assert result.accuracy[:5].max() < result.accuracy[5:].min()  # and identifies them


def test_dawid_skene_beats_majority_with_constant_annotators():
    rng = np.random.default_rng(1)
    confusion = errs([0.85] * 4 + [0.5] * 3, 2)
    confusion[4:] = [1.0, 0.0]  # always "no"
    true, responses = simulated(rng, 500, 7, 5, confusion)
    result = dawid_skene(responses)
    assert expected_accuracy(result, true) > expected_accuracy(majority_vote(responses), true) + 0.1
    assert result.confusion[4:, :, 0].min() > 0.95


def test_few_answers_per_person_favour_the_majority_as_documented():
    """Six answers per person are too few to estimate errors; ninety are enough."""
    better = {}
    for people, spammers, items in ((100, 30, 200), (10, 5, 300)):
        rng = np.random.default_rng(0)
        gap = []
        for _ in range(8):
            right = np.r_[np.full(spammers, 0.5), rng.uniform(0.65, 0.95, people - spammers)]
            true, responses = simulated(rng, items, people, 3, errs(right, 2))
            gap.append(expected_accuracy(dawid_skene(responses), true) - expected_accuracy(majority_vote(responses), true))
        better[people] = np.mean(gap)
    assert better[100] < -0.03
    assert better[10] > 0.03


def test_unanimous_answers_are_certain():
    result = dawid_skene(Answers.from_table([[3, 3], [3, 3]]))
    assert result.value.tolist() == [3, 3]
    assert result.posterior.tolist() == [[1], [1]]


def test_single_answers_are_refused():
    """One answer per item, right in nine of ten cases: no rule can improve on it."""
    _, responses = simulated(np.random.default_rng(6), 200, 5, 1, errs([0.9] * 5, 2))
    with pytest.raises(
        CrossmatchError, match=r"Each of the 200 items has one answer, .* Collect at least two answers .* or use the"
    ):
        dawid_skene(responses)


def test_two_opposite_annotators_leave_ties():
    result = dawid_skene(Answers.from_table([[0, 1], [1, 0], [0, 1], [1, 0]]))
    assert result.is_tied.all()
    assert result.value.tolist() == [None] * 4


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_order_and_ids_do_not_matter(smoothing):
    rng = np.random.default_rng(3)
    _, responses = simulated(rng, 60, 6, 4, errs([0.9, 0.8, 0.7, 0.7, 0.6, 0.5], 3))
    rows, items, people = rng.permutation(len(responses)), rng.permutation(60), rng.permutation(6)
    values = np.array([12, 3, 7])
    reordered = Answers(10 * items[responses.item[rows]], people[responses.person[rows]] - 3, values[responses.value[rows]])
    first, second = (dawid_skene(x, smoothing=smoothing) for x in (responses, reordered))
    of_value = np.searchsorted(second.values, values)  # positions of the first's values among the second's
    assert second.posterior[items][:, of_value] == pytest.approx(first.posterior, abs=1e-6)
    assert second.confusion[people][:, of_value][:, :, of_value] == pytest.approx(first.confusion, abs=1e-6)
    assert second.accuracy[people] == pytest.approx(first.accuracy, abs=1e-6)
    repeated = dawid_skene(responses, smoothing=smoothing)
    assert (repeated.posterior == first.posterior).all()


def test_missing_convergence_is_an_error_with_a_remedy():
    _, responses = simulated(np.random.default_rng(4), 60, 6, 4, errs([0.6] * 6, 2))
    with pytest.raises(CrossmatchError, match=r"did not converge in 3 steps: .* Increase max_steps or tolerance"):
        dawid_skene(responses, max_steps=3)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: majority_vote(Answers.from_triples([])), "no answers to aggregate"),
        (lambda: mean_answers(Answers.from_triples([])), "no answers to aggregate"),
        (lambda: dawid_skene(Answers.from_triples([])), "no answers to aggregate"),
        (lambda: decide_unanimously(Answers.from_triples([]), 1, 0), "min_answers must be at least 1"),
        (lambda: dawid_skene(Answers.from_triples([(1, 1, 1)]), smoothing=-1), "smoothing >= 0"),
        (lambda: dawid_skene(Answers.from_triples([(1, 1, 1)]), tolerance=0), "tolerance > 0"),
        (lambda: dawid_skene(Answers.from_triples([(1, 1, 1)]), smoothing=float("nan")), "smoothing >= 0"),
    ],
)
def test_invalid_input_is_refused(call, message):
    with pytest.raises(CrossmatchError, match=message):
        call()


def test_too_many_distinct_values_are_refused(monkeypatch):
    monkeypatch.setattr(vote_aggregation, "MAX_ELEMENTS", 100)
    responses = Answers.from_table(np.random.default_rng(0).random((10, 3)))
    for call in (majority_vote, dawid_skene):
        with pytest.raises(CrossmatchError, match=r"Too many different values to count votes .30."):
            call(responses)
