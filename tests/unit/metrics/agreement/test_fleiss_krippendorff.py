"""Agreement between annotators: against loops, other libraries and published examples; undefined cases."""

from __future__ import annotations

from dataclasses import asdict
from math import isfinite

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats
from sklearn.metrics import cohen_kappa_score
from statsmodels.stats import inter_rater

from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.metrics.agreement import fleiss_krippendorff
from crossmatch.metrics.agreement.answer_arrays import AnswerPatterns, Answers
from crossmatch.metrics.agreement.cohen_kappa import SMOOTHING, cohen_kappa, mean_kappa, pairwise_cohen_kappa
from crossmatch.metrics.agreement.fleiss_krippendorff import LEVELS, fleiss_kappa, krippendorff_alpha

MISSING = -1


def tables(least_people=2, most_people=5, missing=True, values=4):
    """Items x people, with gaps if `missing`."""
    answer = st.integers(MISSING if missing else 0, values - 1)
    return st.tuples(st.integers(1, 12), st.integers(least_people, most_people)).flatmap(
        lambda shape: st.lists(st.lists(answer, min_size=shape[1], max_size=shape[1]), min_size=shape[0], max_size=shape[0])
    )


def answers_of(table):
    return Answers.from_triples([(i, p, v) for i, row in enumerate(table) for p, v in enumerate(row) if v != MISSING])


def crowd(rng, n, people, known, prior):
    """With probability `known` a person gives the truth, else a guess by the prior; every kappa is then known²."""
    true = rng.choice(len(prior), size=n, p=prior)
    guess = rng.choice(len(prior), size=(n, people), p=prior)
    return Answers.from_table(np.where(rng.random((n, people)) < known, true[:, None], guess))


# Definitions as loops


def cohen_by_counting(first, second):
    n, values = len(first), set(first) | set(second)
    observed = sum(a == b for a, b in zip(first, second, strict=True)) / n
    chance = sum(first.count(v) / n * second.count(v) / n for v in values)
    return None if chance == 1 else (observed - chance) / (1 - chance)


def krippendorff_by_pairs(table, level):
    rows = [[v for v in row if v != MISSING] for row in table]
    rows = [row for row in rows if len(row) > 1]
    responses = [v for row in rows for v in row]
    if len(set(responses)) < 2:
        return None

    def distance(a, b):
        if level == "nominal":
            return float(a != b)
        if level == "interval":
            return float((a - b) ** 2)
        low, high = min(a, b), max(a, b)
        return (
            (sum(low <= v <= high for v in responses) - (responses.count(low) + responses.count(high)) / 2) ** 2 if a != b else 0.0
        )

    n = len(responses)
    observed = (
        sum(distance(a, b) / (len(row) - 1) for row in rows for i, a in enumerate(row) for j, b in enumerate(row) if i != j) / n
    )
    chance = sum(distance(a, b) for i, a in enumerate(responses) for j, b in enumerate(responses) if i != j) / (n * (n - 1))
    return 1 - observed / chance


def close(result, slow):
    if slow is None:
        assert result.value is result.low is result.high is None
        assert result.reason.endswith(".")
    else:
        assert result.value == pytest.approx(slow, abs=1e-9)
        assert -1 <= result.low <= result.value + 1e-12
        assert result.value - 1e-12 <= result.high <= 1
        assert not result.reason
    assert all(isfinite(x) for x in asdict(result).values() if isinstance(x, float))


@given(tables(most_people=2))
def test_cohen_equals_counting(table):
    shared = [row for row in table if MISSING not in row]
    result = cohen_kappa(answers_of(table), 0, 1)
    assert result.items == len(shared)
    assert result.left_out == sum((row[0] == MISSING) != (row[1] == MISSING) for row in table)
    first, second = [a for a, _ in shared], [b for _, b in shared]
    close(result, cohen_by_counting(first, second) if shared else None)
    assert result.observed == (pytest.approx(np.mean([a == b for a, b in shared])) if shared else None)


@given(tables(), st.sampled_from(LEVELS))
def test_krippendorff_equals_a_loop_over_pairs(table, level):
    result = krippendorff_alpha(answers_of(table), level, samples=20)
    close(result, krippendorff_by_pairs(table, level))
    rows = [row for row in table if sum(v != MISSING for v in row) > 1]
    assert result.items == len(rows)
    assert result.left_out == sum(sum(v != MISSING for v in row) == 1 for row in table)
    if rows:
        assert result.people == sum(any(row[p] != MISSING for row in rows) for p in range(len(table[0])))


@given(tables(most_people=4), st.integers(1, 4))
def test_pairwise_kappas_need_enough_shared_items(table, least):
    responses = answers_of(table)
    result = pairwise_cohen_kappa(responses, least)
    people = range(len(table[0]))
    common = {(a, b): sum(row[a] != MISSING and row[b] != MISSING for row in table) for a in people for b in people if a < b}
    assert [(p.first, p.second) for p in result.pairs] == [pair for pair, n in common.items() if n >= least]
    assert result.skipped_pairs == sum(0 < n < least for n in common.values())
    assert all(pair.kappa == cohen_kappa(responses, pair.first, pair.second) for pair in result.pairs)
    defined = [pair.kappa.value for pair in result.pairs if pair.kappa.value is not None]
    close(result.mean, sum(defined) / len(defined) if defined else None)


# Other libraries and published examples


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=2, max_size=60))
def test_cohen_equals_scikit_learn_and_statsmodels(pairs):
    first, second = (np.array(side) for side in zip(*pairs, strict=True))
    assume(len(np.unique([first, second])) > 1)
    result = cohen_kappa(Answers.from_table(np.stack([first, second], axis=1)), 0, 1)
    assert result.value == pytest.approx(cohen_kappa_score(first, second), abs=1e-12)
    values = np.unique([first, second])
    table = np.full((len(values), len(values)), SMOOTHING / len(values) ** 2)
    np.add.at(table, (np.searchsorted(values, first), np.searchsorted(values, second)), 1)
    reference = inter_rater.cohens_kappa(table)  # its standard error is that of fleiss1969large
    freedom = kappa_freedom_by_differences(table, reference.var_kappa)
    margin = stats.t.ppf(0.975, min(max(freedom, 1), len(pairs) - 1)) * reference.var_kappa**0.5
    assert result.low == pytest.approx(max(-1, min(reference.kappa - margin, result.value)), abs=1e-4)
    assert result.high == pytest.approx(min(1, max(reference.kappa + margin, result.value)), abs=1e-4)


def kappa_freedom_by_differences(table, variance):
    """v² / Σ u⁴ over the items, without the added ones; u is the change of kappa by a change of the weight of an item."""
    step, fourth_powers = 1e-4, 0.0
    for cell in np.ndindex(*table.shape):
        up, down = table.copy(), table.copy()
        up[cell] += step
        down[cell] -= step
        slope = (inter_rater.cohens_kappa(up).kappa - inter_rater.cohens_kappa(down).kappa) / (2 * step)
        fourth_powers += (table[cell] - SMOOTHING / table.size) * slope**4
    return variance**2 / fourth_powers if fourth_powers > 1e-20 else np.inf


@given(tables(missing=False, values=6))
def test_fleiss_equals_statsmodels(table):
    result = fleiss_kappa(answers_of(table), samples=20)
    counts = np.array([[row.count(value) for value in range(6)] for row in table])
    close(result, inter_rater.fleiss_kappa(counts) if len({value for row in table for value in row}) > 1 else None)
    assert (result.items, result.people, result.left_out) == (len(table), len(table[0]), 0)


@pytest.mark.parametrize("level", LEVELS)
def test_block_size_does_not_matter(monkeypatch, level):
    responses = crowd(np.random.default_rng(0), 50, 3, 0.7, [0.5, 0.3, 0.2])
    fits = krippendorff_alpha(responses, level), fleiss_kappa(responses)
    monkeypatch.setattr(fleiss_krippendorff, "MAX_ELEMENTS", 20)  # too little for two replicates at a time
    small = krippendorff_alpha(responses, level), fleiss_kappa(responses)
    for first, second in zip(fits, small, strict=True):
        assert [second.value, second.low, second.high] == pytest.approx([first.value, first.low, first.high], abs=1e-12)


def test_many_distinct_values_are_supported():
    rng = np.random.default_rng(0)
    truth = rng.normal(size=(2000, 1))
    responses = Answers.from_table(1e200 * (truth + rng.normal(size=(2000, 3))))  # and no square overflows
    for level in ("ordinal", "interval"):
        result = krippendorff_alpha(responses, level, samples=50)
        assert result.low < 0.5 < result.high
        assert result.high - result.low < 0.12


def test_krippendorff_equals_the_published_example():
    """Four people, twelve units, seven gaps: krippendorff2004content, sec. 11.3, gives 0.743, 0.815 and 0.849."""
    gap = np.nan
    people = [
        [1, 2, 3, 3, 2, 1, 4, 1, 2, gap, gap, gap],
        [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, gap, 3],
        [gap, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, gap],
        [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, gap],
    ]
    results = [krippendorff_alpha(Answers.from_table(np.array(people).T), level) for level in LEVELS]
    assert [round(f.value, 3) for f in results] == [0.743, 0.815, 0.849]
    assert {(f.items, f.people, f.left_out) for f in results} == {(11, 4, 1)}  # the last unit was seen by one person


def test_fleiss_equals_the_textbook_example():
    """Ten subjects, fourteen raters, five values: 0.210."""
    votes = "0 0 0 0 14, 0 2 6 4 2, 0 0 3 5 6, 0 3 9 2 0, 2 2 8 1 1, 7 7 0 0 0, 3 2 6 3 0, 2 5 3 2 2, 6 5 2 1 0, 0 2 2 3 7"
    counts = np.array([row.split() for row in votes.split(", ")], dtype=int)
    result = fleiss_kappa(Answers.from_table([np.repeat(np.arange(1, 6), row) for row in counts]))
    assert round(result.value, 3) == 0.210
    assert (result.items, result.people) == (10, 14)


# Intervals


@pytest.mark.slow
@pytest.mark.parametrize("level", [*LEVELS, "fleiss"])
def test_interval_equals_a_slow_bootstrap(level):
    responses = crowd(np.random.default_rng(1), 40, 3, 0.7, [0.4, 0.4, 0.2])
    result = (
        fleiss_kappa(responses, samples=60, seed=5)
        if level == "fleiss"
        else krippendorff_alpha(responses, level, samples=60, seed=5)
    )
    patterns = AnswerPatterns.from_answers(responses)
    slow = []
    for times in np.random.default_rng(5).multinomial(40, patterns.item_counts / 40, size=60):
        counts = np.repeat(patterns.value_counts.toarray().astype(int), times, axis=0)
        rows = [np.repeat(np.arange(len(row)), row).tolist() for row in counts]
        slow.append(inter_rater.fleiss_kappa(counts) if level == "fleiss" else krippendorff_by_pairs(rows, level))
    tail = stats.norm.cdf(-np.sqrt(40 / 39) * stats.t.ppf(0.975, 39))
    assert (result.low, result.high) == pytest.approx(tuple(np.quantile(slow, [tail, 1 - tail])), abs=1e-9)


@pytest.mark.parametrize(("n", "prior", "known"), [(30, [0.5, 0.5], 0.6), (100, [0.5, 0.3, 0.2], 0.9), (100, [0.7, 0.3], 0.8)])
def test_intervals_have_their_coverage(n, prior, known):
    rng = np.random.default_rng(2)
    trials, covered = 150, {"cohen": 0, "fleiss": 0, "krippendorff": 0, "pairs": 0}
    for _ in range(trials):
        responses = crowd(rng, n, 3, known, prior)
        results = {
            "cohen": cohen_kappa(responses, 0, 1),
            "fleiss": fleiss_kappa(responses),
            "krippendorff": krippendorff_alpha(responses),
            "pairs": pairwise_cohen_kappa(responses).mean,
        }
        for name, interval in results.items():
            covered[name] += interval.low <= known**2 <= interval.high
    least = trials * 0.95 - 3 * np.sqrt(trials * 0.95 * 0.05)  # three standard errors
    assert all(times >= least for times in covered.values()), covered


def test_shared_items_widen_the_interval_of_the_mean():
    rng = np.random.default_rng(4)
    separate = [crowd(rng, 100, 2, 0.8, [0.5, 0.5]) for _ in range(10)]
    ten = Answers(
        *(
            np.concatenate(part)
            for part in zip(*((a.item + 100 * n, a.person + 2 * n, a.value) for n, a in enumerate(separate)), strict=True)
        )
    )
    five = crowd(rng, 100, 5, 0.8, [0.5, 0.5])  # ten pairs too
    alone, shared = pairwise_cohen_kappa(ten), pairwise_cohen_kappa(five)
    assert len(alone.pairs) == len(shared.pairs) == 10
    assert (alone.mean.items, alone.mean.people, shared.mean.items, shared.mean.people) == (1000, 20, 100, 5)
    width = np.mean([p.kappa.high - p.kappa.low for p in alone.pairs])
    assert alone.mean.high - alone.mean.low == pytest.approx(width / np.sqrt(10), rel=0.05)
    assert shared.mean.high - shared.mean.low > 1.3 * (alone.mean.high - alone.mean.low)


def test_mean_of_one_pair_has_the_interval_of_the_pair():
    for known in (0.7, 1.0):
        responses = crowd(np.random.default_rng(5), 50, 2, known, [0.5, 0.5])
        first, mean = cohen_kappa(responses, 0, 1), pairwise_cohen_kappa(responses).mean
        assert (mean.value, mean.low, mean.high) == pytest.approx((first.value, first.low, first.high), abs=1e-12)


@pytest.mark.parametrize("n", [2, 10, 100])
def test_perfect_agreement_has_a_wide_interval(n):
    """The bootstrap and the usual standard error would give the interval from 1 to 1."""
    responses = Answers.from_table(np.repeat(np.arange(n)[:, None] % 2, 3, axis=1))
    worst = stats.binomtest(0, n).proportion_ci(method="wilson").high  # disagreements among so many items
    for result in (
        cohen_kappa(responses, 0, 1),
        pairwise_cohen_kappa(responses, min_shared=2).mean,
        fleiss_kappa(responses),
        krippendorff_alpha(responses),
    ):
        assert (result.value, result.high, result.observed) == (1, 1, 1)
        assert result.low <= 1 - worst  # chance would disagree in about half
        assert n == 2 or result.low > 1 - 2.5 * worst


def test_one_item_has_the_widest_interval():
    responses = Answers.from_table([[1, 2]])
    for result in (cohen_kappa(responses, 0, 1), fleiss_kappa(responses), krippendorff_alpha(responses, "interval")):
        assert (result.low, result.high) == (-1, 1)


def test_constant_annotator_gives_kappa_zero_with_an_interval():
    result = cohen_kappa(Answers.from_table([[1, 1]] * 40 + [[1, 2]] * 10), 0, 1)
    assert result.value == pytest.approx(0)
    assert result.low < -0.1  # `test_kappa_coverage.py` shows that such intervals are wide enough
    assert result.high > 0.2


def test_undefined_replicates_widen_the_interval():
    """People disagree on one of twenty items, which is missing from more than a third of the replicates."""
    result = krippendorff_alpha(Answers.from_table([[1, 1, 1]] * 19 + [[1, 1, 2]]))
    assert result.value == pytest.approx(0, abs=0.1)
    assert (result.low, result.high) == (-1, 1)


# Invariances


@given(tables(), st.randoms(use_true_random=False))
def test_order_and_ids_do_not_matter(table, random):
    responses = answers_of(table)
    rows = list(range(len(responses)))
    random.shuffle(rows)
    items, people = random.sample(range(-50, 50), 12), random.sample(range(1000), 5)
    reordered = (
        Answers(np.array(items)[responses.item[rows]], np.array(people)[responses.person[rows]], responses.value[rows])
        if rows
        else responses
    )
    for level in LEVELS:
        assert krippendorff_alpha(reordered, level, samples=20) == krippendorff_alpha(responses, level, samples=20)
    first, second = pairwise_cohen_kappa(responses, 1).mean, pairwise_cohen_kappa(reordered, 1).mean
    assert (first.items, first.people) == (second.items, second.people)
    if first.value is not None:
        assert (second.value, second.low, second.high) == pytest.approx((first.value, first.low, first.high), abs=1e-9)


def test_codes_and_units_of_values_do_not_matter():
    responses = crowd(np.random.default_rng(6), 80, 3, 0.7, [0.5, 0.3, 0.2])
    named = Answers(responses.item, responses.person, np.array([40, 7, 19])[responses.value])
    for measure in (fleiss_kappa, krippendorff_alpha, lambda x: cohen_kappa(x, 0, 1)):
        assert measure(named).value == pytest.approx(measure(responses).value, abs=1e-12)
    scaled = Answers(responses.item, responses.person, 1e-9 * responses.value - 3)
    first, second = krippendorff_alpha(responses, "interval"), krippendorff_alpha(scaled, "interval")
    assert (first.value, first.low, first.high) == pytest.approx((second.value, second.low, second.high), abs=1e-6)


def test_interval_depends_on_the_seed():
    responses = crowd(np.random.default_rng(7), 50, 3, 0.7, [0.5, 0.5])
    assert krippendorff_alpha(responses, seed=1) == krippendorff_alpha(responses, seed=1)
    assert krippendorff_alpha(responses, seed=1).low != krippendorff_alpha(responses, seed=2).low


# Undefined and invalid


@pytest.mark.parametrize(
    ("responses", "reason"),
    [
        (Answers.from_triples([]), "there are no answers yet"),
        (Answers.from_triples([(1, 1, 0), (2, 1, 1)]), "no item has answers of two people"),
        (Answers.from_triples([(1, 1, 0), (2, 2, 1)]), "no item has answers of two people"),
        (
            Answers.from_triples([(1, 1, 4), (1, 2, 4), (2, 1, 4), (2, 2, 4)]),
            "all 4 answers have the value 4, so the agreement expected by chance",
        ),
    ],
)
def test_undefined_agreement_has_a_reason(responses, reason):
    for result in (fleiss_kappa(responses), *(krippendorff_alpha(responses, level) for level in LEVELS)):
        assert result.value is None
        assert result.reason.startswith(reason)
        assert str(result) == f"undefined: {result.reason}"
        assert result.people == len(set(responses.person.tolist()))
        assert result.left_out + result.items == len(set(responses.item.tolist()))
    assert cohen_kappa(responses, 1, 2).value is None
    mean = pairwise_cohen_kappa(responses, 1).mean
    assert mean.value is None
    assert mean.reason.endswith(".")


def test_undefined_kappas_of_two_people():
    responses = Answers.from_triples([(1, 1, 0), (1, 2, 0), (2, 1, 0), (2, 2, 0), (3, 3, 1)])
    assert cohen_kappa(responses, 1, 2).reason.startswith("both people gave all 2 items the value 0")
    assert cohen_kappa(responses, 1, 2).observed == 1
    assert (
        cohen_kappa(responses, 1, 3).reason == "no item was answered by both person 1 and person 3. Ask them about the same items."
    )
    assert cohen_kappa(responses, 1, 99).value is None
    assert pairwise_cohen_kappa(responses, 2).mean.reason.startswith(
        "the kappa of the one pair is undefined. First pair: both people gave"
    )
    assert pairwise_cohen_kappa(responses, 3).mean.reason.startswith("no two people share 3 items; the largest number is 2.")
    assert pairwise_cohen_kappa(responses, 3).skipped_pairs == 1


def test_mean_leaves_out_undefined_pairs():
    divided = [(n, p, n % 2) for n in range(4) for p in (1, 2)]
    responses = Answers.from_triples([*divided, *((n, p, 0) for n in range(10, 14) for p in (3, 4))])
    result = pairwise_cohen_kappa(responses, 4)
    assert [pair.kappa.value for pair in result.pairs] == [1.0, None]
    assert (result.mean.value, result.mean.items, result.mean.people) == (1.0, 4, 2)
    assert mean_kappa([]) is None


def test_fleiss_refuses_different_numbers_of_answers():
    """A third person answered only where two disagreed, so items with two answers have perfect agreement."""
    responses = Answers.from_table([[0, 0, np.nan]] * 5 + [[1, 1, np.nan]] * 5 + [[0, 1, 1]] * 4)
    with pytest.raises(CrossmatchError, match=r"needs the same number of answers.*10 with 2, 4 with 3"):
        fleiss_kappa(responses)
    second, three = fleiss_kappa(responses, answers_per_item=2), fleiss_kappa(responses, answers_per_item=3)
    assert (second.value, second.items, second.left_out) == (1, 10, 4)
    assert three.value < 0
    assert (three.items, three.left_out) == (4, 10)
    none = fleiss_kappa(responses, answers_per_item=4)
    assert (none.value, none.reason, none.left_out) == (None, "no item has exactly 4 answers; items have 2, 3.", 14)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Answers.from_triples([(1, 1, 0), (1, 1, 1)]), "person 1 answered item 1 more than once"),
        (lambda: Answers.from_triples([(1, 1, np.nan)]), "NaN or infinite"),
        (lambda: Answers(np.array([1]), np.array([1]), np.array(["yes"])), "Number the answers"),
        (lambda: Answers(np.array([1, 2]), np.array([1]), np.array([1])), "flat arrays of equal length"),
        (lambda: Answers(np.array([0.5]), np.array([1]), np.array([1])), "not whole"),
        (lambda: Answers.from_table([1, 2]), "items x people"),
        (lambda: cohen_kappa(Answers.from_triples([]), 1, 1), "Give two different people"),
        (lambda: pairwise_cohen_kappa(Answers.from_triples([]), 0), "min_shared must be at least 1"),
        (lambda: fleiss_kappa(Answers.from_triples([]), answers_per_item=1), "answers_per_item must be at least 2"),
        (lambda: fleiss_kappa(Answers.from_triples([]), samples=1), "at least 2"),
        (lambda: krippendorff_alpha(Answers.from_triples([]), samples=0), "at least 2"),
    ],
)
def test_invalid_input_is_refused(call, message):
    with pytest.raises(CrossmatchError, match=message):
        call()


def test_unknown_level_of_measurement_is_a_usage_error():
    with pytest.raises(UsageError, match=r"Unknown level of measurement 'ratio'. Choose one of nominal, ordinal, interval"):
        krippendorff_alpha(Answers.from_triples([]), "ratio")


def test_answers_are_copied_and_read_only():
    value = np.array([1, 2])
    responses = Answers(np.array([1, 2]), np.array([1, 1]), value)
    value[0] = 9
    assert responses.value.tolist() == [1, 2]
    with pytest.raises(ValueError, match="read-only"):
        responses.value[0] = 9
    assert Answers.from_triples([(1, 1, True), (1, 2, False)]).value.dtype == np.int64
