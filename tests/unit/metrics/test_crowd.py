"""From many answers to one: counted one by one, against the model written out in loops, and on crowds whose truth is known."""

from __future__ import annotations

from collections import Counter, defaultdict
from math import log
from statistics import mean, stdev

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crossmatch.core.errors import CrossmatchError
from crossmatch.metrics import crowd
from crossmatch.metrics.answers import Answers
from crossmatch.metrics.crowd import dawid_skene, majority, mean_and_deviation, unanimous

answers = st.dictionaries(
    st.tuples(st.integers(0, 8), st.integers(0, 4)), st.integers(0, 2), min_size=1, max_size=35
)  # {(item, person): value}


def said_by(given_):
    return Answers.of([(item, person, value) for (item, person), value in given_.items()])


def by_item(given_):
    rows = defaultdict(list)
    for (item, _), value in given_.items():
        rows[item].append(value)
    return dict(sorted(rows.items()))


# Counting


@given(answers)
def test_majority_is_what_counting_gives_and_ties_stay(given_):
    found = majority(said_by(given_))
    rows = by_item(given_)
    assert found.item.tolist() == list(rows)
    for n, row in enumerate(rows.values()):
        counts = Counter(row)
        best = {value for value, times in counts.items() if times == max(counts.values())}
        assert found.tied[n] == (len(best) > 1)
        assert found.value.tolist()[n] == (None if len(best) > 1 else best.pop())
        assert {int(v) for v in found.values[found.most[n]]} == {v for v in counts if counts[v] == max(counts.values())}
        assert found.share[n] == pytest.approx(max(counts.values()) / len(row))
        assert found.answers[n] == len(row)


@given(answers, st.integers(0, 2), st.integers(1, 4))
def test_unanimous_is_all_of_them_and_enough(given_, wanted, needed):
    found = unanimous(said_by(given_), wanted, needed)
    for n, row in enumerate(by_item(given_).values()):
        assert found.accepted[n] == (set(row) == {wanted} and len(row) >= needed)
        assert found.rejected[n] == (set(row) != {wanted})
        assert found.accepted[n] + found.rejected[n] + found.waiting[n] == 1


def test_nothing_is_accepted_of_nothing():
    assert not len(unanimous(Answers.of([]), 1, 2).accepted)


@given(answers)
def test_means_and_deviations_are_those_of_the_standard_library(given_):
    found = mean_and_deviation(said_by(given_))
    for n, row in enumerate(by_item(given_).values()):
        assert found.mean[n] == pytest.approx(mean(row))
        assert found.deviation.tolist()[n] == (pytest.approx(stdev(row)) if len(row) > 1 else None)
        assert found.answers[n] == len(row)


def test_deviations_far_from_zero_keep_their_digits():
    found = mean_and_deviation(Answers.of([(0, 0, 1e9 + 1), (0, 1, 1e9 + 2), (0, 2, 1e9 + 3)]))
    assert found.deviation[0] == pytest.approx(1.0)


# The model


def one_step(given_, posterior, smoothing):
    """One M-step and one E-step, in loops; the objective too."""
    people, values = sorted({p for _, p in given_}), sorted(set(given_.values()))
    items = sorted(posterior)
    prior = {k: sum(posterior[i][k] for i in items) + smoothing for k in values}
    prior = {k: x / sum(prior.values()) for k, x in prior.items()}
    confusion = {}
    for p in people:
        for k in values:
            row = {v: smoothing + sum(posterior[i][k] for (i, q), said in given_.items() if q == p and said == v) for v in values}
            total = sum(row.values())
            confusion[p, k] = {v: x / total if total else 1 / len(values) for v, x in row.items()}
    objective = smoothing * sum(log(x) for row in (prior, *confusion.values()) for x in row.values()) if smoothing else 0.0
    new = {}
    for i in items:
        parts = dict(prior)
        for (j, p), v in given_.items():
            if j == i:
                for k in values:
                    parts[k] *= confusion[p, k][v]
        objective += log(sum(parts.values()))
        new[i] = {k: x / sum(parts.values()) for k, x in parts.items()}
    return new, prior, confusion, objective


compared = answers.filter(lambda given_: len({item for item, _ in given_}) < len(given_))  # some item has two answers


@settings(deadline=None, max_examples=40)
@given(compared, st.sampled_from([0.0, 0.1, 1.0]))
def test_each_step_is_the_one_in_loops(given_, smoothing):
    try:
        found = dawid_skene(said_by(given_), smoothing=smoothing, tolerance=1e-4)
    except CrossmatchError:  # these answers would take very long; another test is about that
        return
    values = sorted(set(given_.values()))
    slow = {i: {k: row.count(k) / len(row) for k in values} for i, row in by_item(given_).items()}
    for reached in found.objective:
        slow, prior, confusion, objective = one_step(given_, slow, smoothing)
        assert reached == pytest.approx(objective, abs=1e-6)
    assert found.posterior == pytest.approx(np.array([[row[k] for k in values] for row in slow.values()]), abs=1e-6)
    assert found.prior == pytest.approx([prior[k] for k in values], abs=1e-6)
    for n, p in enumerate(found.person.tolist()):
        assert found.confusion[n] == pytest.approx(np.array([[confusion[p, k][v] for v in values] for k in values]), abs=1e-6)


@settings(deadline=None)
@given(compared, st.sampled_from([0.0, 0.1, 1.0]))
def test_no_step_goes_down_and_everything_is_a_probability(given_, smoothing):
    found = dawid_skene(said_by(given_), smoothing=smoothing, tolerance=1e-6)
    assert (np.diff(found.objective) >= -1e-9 * np.maximum(1, np.abs(found.objective[1:]))).all()
    for shares in (found.posterior, found.confusion, found.prior):
        assert np.isfinite(shares).all()
        assert (shares >= 0).all()
        assert shares.sum(axis=-1) == pytest.approx(1)
    assert (found.accuracy <= 1 + 1e-12).all()


def simulated(rng, items, people, answers_each, confusion):
    """Items of equally frequent values, each answered by so many people, who err as `confusion[person, true, answered]` says."""
    k = confusion.shape[1]
    true = rng.integers(0, k, items)
    who = np.argsort(rng.random((items, people)), axis=1)[:, :answers_each]
    reach = confusion[who, true[:, None]].cumsum(axis=2)
    said = (rng.random(who.shape)[:, :, None] > reach[:, :, :-1]).sum(axis=2)
    return true, Answers(np.repeat(np.arange(items), answers_each), who.ravel(), said.ravel())


def errs(right, k):
    """Confusion matrices of people who are right so often, and wrong alike in all other ways."""
    right = np.asarray(right)[:, None, None]
    return np.where(np.eye(k, dtype=bool), right, (1 - right) / (k - 1))


def expected_accuracy(found, true):
    """Of values with ties, each tied one being as good."""
    best = found.most if hasattr(found, "most") else found.posterior >= found.posterior.max(axis=1, keepdims=True) - 1e-9
    return float((best[np.arange(len(true)), true] / best.sum(axis=1)).mean())


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_what_generated_the_answers_is_found_again(smoothing):
    rng = np.random.default_rng(0)
    confusion = rng.dirichlet(np.ones(3), (7, 3)) * 0.4 + np.eye(3) * 0.6  # everybody has errors of their own
    true, said = simulated(rng, 4000, 7, 7, confusion)
    found = dawid_skene(said, smoothing=smoothing)
    met = np.bincount(true)  # items of each value: the rows' sizes if the truth were known
    error = np.sqrt(confusion * (1 - confusion) / met[None, :, None])
    far = np.abs(found.confusion - confusion) / error
    assert far.max() < 4.5  # of 63 numbers, with a little more error as the truth is not known
    assert 0.7 < np.sqrt(np.mean(far**2)) < 1.4
    assert found.prior == pytest.approx(met / 4000, abs=0.02)
    assert (found.value == true).mean() > 0.97
    # a posterior of 90 % is right nine times in ten
    sure = found.posterior.max(axis=1)
    assert (found.value == true).mean() == pytest.approx(sure.mean(), abs=3 * np.sqrt((sure * (1 - sure)).sum()) / 4000)


@pytest.mark.parametrize("seed", range(3))
def test_it_beats_the_majority_where_half_the_people_answer_at_random(seed):
    rng = np.random.default_rng(seed)
    right = np.r_[np.full(5, 1 / 3), rng.uniform(0.65, 0.95, 5)]
    true, said = simulated(rng, 300, 10, 5, errs(right, 3))
    found = dawid_skene(said)
    assert expected_accuracy(found, true) > expected_accuracy(majority(said), true) + 0.05
    assert found.accuracy[:5].max() < found.accuracy[5:].min()  # and tells who they are


def test_it_beats_the_majority_where_some_always_answer_the_same():
    rng = np.random.default_rng(1)
    confusion = errs([0.85] * 4 + [0.5] * 3, 2)
    confusion[4:] = [1.0, 0.0]  # "no", whatever was shown
    true, said = simulated(rng, 500, 7, 5, confusion)
    found = dawid_skene(said)
    assert expected_accuracy(found, true) > expected_accuracy(majority(said), true) + 0.1
    assert found.confusion[4:, :, 0].min() > 0.95


def test_people_with_few_answers_are_better_left_to_the_majority_as_documented():
    """Six answers of each do not tell how a person errs; ninety do."""
    better = {}
    for people, spammers, items in ((100, 30, 200), (10, 5, 300)):
        rng = np.random.default_rng(0)
        gap = []
        for _ in range(8):
            right = np.r_[np.full(spammers, 0.5), rng.uniform(0.65, 0.95, people - spammers)]
            true, said = simulated(rng, items, people, 3, errs(right, 2))
            gap.append(expected_accuracy(dawid_skene(said), true) - expected_accuracy(majority(said), true))
        better[people] = np.mean(gap)
    assert better[100] < -0.03
    assert better[10] > 0.03


def test_nobody_who_differs_is_a_certain_truth():
    found = dawid_skene(Answers.from_table([[3, 3], [3, 3]]))
    assert found.value.tolist() == [3, 3]
    assert found.posterior.tolist() == [[1], [1]]


def test_one_answer_to_each_item_tells_nothing_of_who_errs_and_is_refused():
    """People who are right nine times in ten, one for each item: no rule can do better than to believe them."""
    _, said = simulated(np.random.default_rng(6), 200, 5, 1, errs([0.9] * 5, 2))
    with pytest.raises(CrossmatchError, match=r"each of the 200 items has one answer, .* Ask two or more people .* or take the"):
        dawid_skene(said)


def test_two_who_never_agree_leave_a_tie():
    found = dawid_skene(Answers.from_table([[0, 1], [1, 0], [0, 1], [1, 0]]))
    assert found.tied.all()
    assert found.value.tolist() == [None] * 4


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_order_and_names_change_nothing(smoothing):
    rng = np.random.default_rng(3)
    _, said = simulated(rng, 60, 6, 4, errs([0.9, 0.8, 0.7, 0.7, 0.6, 0.5], 3))
    rows, items, people = rng.permutation(len(said)), rng.permutation(60), rng.permutation(6)
    values = np.array([12, 3, 7])
    other = Answers(10 * items[said.item[rows]], people[said.person[rows]] - 3, values[said.value[rows]])
    one, two = (dawid_skene(x, smoothing=smoothing) for x in (said, other))
    of_value = np.searchsorted(two.values, values)  # where the first's values stand among the second's
    assert two.posterior[items][:, of_value] == pytest.approx(one.posterior, abs=1e-6)
    assert two.confusion[people][:, of_value][:, :, of_value] == pytest.approx(one.confusion, abs=1e-6)
    assert two.accuracy[people] == pytest.approx(one.accuracy, abs=1e-6)
    again = dawid_skene(said, smoothing=smoothing)
    assert (again.posterior == one.posterior).all()


def test_what_did_not_settle_is_an_error_that_says_what_to_do():
    _, said = simulated(np.random.default_rng(4), 60, 6, 4, errs([0.6] * 6, 2))
    with pytest.raises(
        CrossmatchError, match=r"after 3 steps the likelihood still grows: .* Allow more steps, or a larger tolerance"
    ):
        dawid_skene(said, steps=3)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: majority(Answers.of([])), "no answers yet"),
        (lambda: mean_and_deviation(Answers.of([])), "no answers yet"),
        (lambda: dawid_skene(Answers.of([])), "no answers yet"),
        (lambda: unanimous(Answers.of([]), 1, 0), "needs 1 or more"),
        (lambda: dawid_skene(Answers.of([(1, 1, 1)]), smoothing=-1), "at least 0"),
        (lambda: dawid_skene(Answers.of([(1, 1, 1)]), tolerance=0), "above 0"),
        (lambda: dawid_skene(Answers.of([(1, 1, 1)]), smoothing=float("nan")), "at least 0"),
    ],
)
def test_what_cannot_be_used_is_refused(call, says):
    with pytest.raises(CrossmatchError, match=says):
        call()


def test_numbers_on_a_scale_are_not_counted_one_by_one(monkeypatch):
    monkeypatch.setattr(crowd, "ROOM", 100)
    said = Answers.from_table(np.random.default_rng(0).random((10, 3)))
    for call in (majority, dawid_skene):
        with pytest.raises(CrossmatchError, match="30 different values, too many to count one by one"):
            call(said)
