"""Agreement between people: against the definitions written out, the libraries and a published example; where it is undefined."""

from __future__ import annotations

import sys
from dataclasses import asdict
from math import isfinite

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from krippendorff import alpha
from scipy import stats
from sklearn.metrics import cohen_kappa_score
from statsmodels.stats.inter_rater import cohens_kappa, fleiss_kappa

from crossmatch.core.errors import CrossmatchError, MissingDependency, WrongWords
from crossmatch.metrics import raters
from crossmatch.metrics.answers import Answers, Kinds
from crossmatch.metrics.cohen import cohen, cohen_pairs, mean_kappa
from crossmatch.metrics.raters import LEVELS, fleiss, krippendorff

MISSING = -1


def tables(least_people=2, most_people=5, missing=True, values=4):
    """Items x people, with gaps if `missing`."""
    answer = st.integers(MISSING if missing else 0, values - 1)
    return st.tuples(st.integers(1, 12), st.integers(least_people, most_people)).flatmap(
        lambda shape: st.lists(st.lists(answer, min_size=shape[1], max_size=shape[1]), min_size=shape[0], max_size=shape[0])
    )


def answers_of(table):
    return Answers.of([(i, p, v) for i, row in enumerate(table) for p, v in enumerate(row) if v != MISSING])


def crowd(rng, n, people, known, prior):
    """With probability `known` a person gives the truth, else a guess by the prior: any kappa of such people is known²."""
    true = rng.choice(len(prior), size=n, p=prior)
    guess = rng.choice(len(prior), size=(n, people), p=prior)
    return Answers.from_table(np.where(rng.random((n, people)) < known, true[:, None], guess))


# The definitions written out


def cohen_by_counting(one, two):
    n, values = len(one), set(one) | set(two)
    seen = sum(a == b for a, b in zip(one, two, strict=True)) / n
    chance = sum(one.count(v) / n * two.count(v) / n for v in values)
    return None if chance == 1 else (seen - chance) / (1 - chance)


def fleiss_by_counting(table):
    n, m = len(table), len(table[0])
    values = sorted({v for row in table for v in row})
    seen = sum(row.count(v) * (row.count(v) - 1) for row in table for v in values) / (n * m * (m - 1))
    chance = sum((sum(row.count(v) for row in table) / (n * m)) ** 2 for v in values)
    return None if len(values) < 2 else (seen - chance) / (1 - chance)


def krippendorff_by_pairs(table, level):
    rows = [[v for v in row if v != MISSING] for row in table]
    rows = [row for row in rows if len(row) > 1]
    said = [v for row in rows for v in row]
    if len(set(said)) < 2:
        return None

    def apart(a, b):
        if level == "nominal":
            return float(a != b)
        if level == "interval":
            return float((a - b) ** 2)
        low, high = min(a, b), max(a, b)
        return (sum(low <= v <= high for v in said) - (said.count(low) + said.count(high)) / 2) ** 2 if a != b else 0.0

    n = len(said)
    seen = sum(apart(a, b) / (len(row) - 1) for row in rows for i, a in enumerate(row) for j, b in enumerate(row) if i != j) / n
    chance = sum(apart(a, b) for i, a in enumerate(said) for j, b in enumerate(said) if i != j) / (n * (n - 1))
    return 1 - seen / chance


def close(found, slow):
    if slow is None:
        assert found.value is found.low is found.high is None
        assert found.reason.endswith(".")
    else:
        assert found.value == pytest.approx(slow, abs=1e-9)
        assert -1 <= found.low <= found.value + 1e-12
        assert found.value - 1e-12 <= found.high <= 1
        assert not found.reason
    assert all(isfinite(x) for x in asdict(found).values() if isinstance(x, float))


@settings(deadline=None)
@given(tables(most_people=2))
def test_cohen_is_what_counting_gives(table):
    both = [row for row in table if MISSING not in row]
    found = cohen(answers_of(table), 0, 1)
    assert found.items == len(both)
    assert found.left_out == sum((row[0] == MISSING) != (row[1] == MISSING) for row in table)
    one, two = [a for a, _ in both], [b for _, b in both]
    close(found, cohen_by_counting(one, two) if both else None)
    assert found.observed == (pytest.approx(np.mean([a == b for a, b in both])) if both else None)


@settings(deadline=None)
@given(tables(missing=False))
def test_fleiss_is_what_counting_gives(table):
    found = fleiss(answers_of(table), samples=20)
    close(found, fleiss_by_counting(table))
    assert (found.items, found.people, found.left_out) == (len(table), len(table[0]), 0)


@settings(deadline=None)
@given(tables(), st.sampled_from(LEVELS))
def test_krippendorff_is_what_going_through_all_pairs_gives(table, level):
    found = krippendorff(answers_of(table), level, samples=20)
    close(found, krippendorff_by_pairs(table, level))
    rows = [row for row in table if sum(v != MISSING for v in row) > 1]
    assert found.items == len(rows)
    assert found.left_out == sum(sum(v != MISSING for v in row) == 1 for row in table)
    if rows:
        assert found.people == sum(any(row[p] != MISSING for row in rows) for p in range(len(table[0])))


@settings(deadline=None)
@given(tables(most_people=4), st.integers(1, 4))
def test_pairs_are_those_with_enough_common_items_and_the_mean_is_theirs(table, least):
    said = answers_of(table)
    found = cohen_pairs(said, least)
    people = range(len(table[0]))
    common = {(a, b): sum(row[a] != MISSING and row[b] != MISSING for row in table) for a in people for b in people if a < b}
    assert [(p.first, p.second) for p in found.pairs] == [pair for pair, n in common.items() if n >= least]
    assert found.few == sum(0 < n < least for n in common.values())
    assert all(pair.kappa == cohen(said, pair.first, pair.second) for pair in found.pairs)
    defined = [pair.kappa.value for pair in found.pairs if pair.kappa.value is not None]
    close(found.mean, sum(defined) / len(defined) if defined else None)


# The libraries and the published


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=2, max_size=60))
def test_cohen_is_scikit_learns_and_its_interval_statsmodels(pairs):
    one, two = (np.array(side) for side in zip(*pairs, strict=True))
    assume(len(np.unique([one, two])) > 1)
    found = cohen(Answers.from_table(np.stack([one, two], axis=1)), 0, 1)
    assert found.value == pytest.approx(cohen_kappa_score(one, two), abs=1e-12)
    table = np.zeros((4, 4))
    np.add.at(table, (one, two), 1)
    with np.errstate(all="ignore"):  # statsmodels divides by a standard error of zero
        theirs = cohens_kappa(table)
    if theirs.var_kappa > 1e-12:
        assert found.low == pytest.approx(max(-1, theirs.kappa_low), abs=1e-9)
        assert found.high == pytest.approx(min(1, theirs.kappa_upp), abs=1e-9)
    else:
        assert found.high - found.low > 0.01  # sixty items are not certainty


@settings(deadline=None)
@given(tables(values=6), st.sampled_from(LEVELS))
def test_the_closed_form_is_the_libraries(table, level):
    kinds = Kinds.of(answers_of([row for row in table if sum(v != MISSING for v in row) > 1]))
    assume(len(kinds.values) > 1)
    seen, chance = raters._disagreement_of_all(kinds, level, fleiss=False)
    theirs = alpha(value_counts=kinds.table(), value_domain=kinds.values, level_of_measurement=level)
    assert 1 - seen / chance == pytest.approx(theirs, abs=1e-9)
    if len(set(kinds.answers.tolist())) == 1:
        seen, chance = raters._disagreement_of_all(kinds, "nominal", fleiss=True)
        assert 1 - seen / chance == pytest.approx(fleiss_kappa(kinds.table()), abs=1e-9)


@pytest.mark.parametrize("level", LEVELS)
def test_what_does_not_fit_in_the_libraries_is_computed_all_the_same(monkeypatch, level):
    said = crowd(np.random.default_rng(0), 50, 3, 0.7, [0.5, 0.3, 0.2])
    fits = krippendorff(said, level), fleiss(said)
    monkeypatch.setattr(raters, "ROOM", 20)  # too little for any table, and for two replicates at a time
    small = krippendorff(said, level), fleiss(said)
    for one, two in zip(fits, small, strict=True):
        assert [two.value, two.low, two.high] == pytest.approx([one.value, one.low, one.high], abs=1e-12)


def test_numbers_with_many_decimals_need_no_table():
    rng = np.random.default_rng(0)
    truth = rng.normal(size=(2000, 1))
    said = Answers.from_table(1e200 * (truth + rng.normal(size=(2000, 3))))  # and no square overflows
    for level in ("ordinal", "interval"):
        found = krippendorff(said, level, samples=50)
        assert found.low < 0.5 < found.high
        assert found.high - found.low < 0.12


def test_krippendorffs_own_example():
    """Four people, twelve units, seven gaps: krippendorff2004content, sec. 11.3, gives 0.743, 0.815 and 0.849."""
    gap = np.nan
    people = [
        [1, 2, 3, 3, 2, 1, 4, 1, 2, gap, gap, gap],
        [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, gap, 3],
        [gap, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, gap],
        [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, gap],
    ]
    found = [krippendorff(Answers.from_table(np.array(people).T), level) for level in LEVELS]
    assert [round(f.value, 3) for f in found] == [0.743, 0.815, 0.849]
    assert {(f.items, f.people, f.left_out) for f in found} == {(11, 4, 1)}  # the last unit was seen by one person


def test_the_textbook_example_of_fleiss():
    """Ten subjects, fourteen raters, five values: 0.210."""
    votes = "0 0 0 0 14, 0 2 6 4 2, 0 0 3 5 6, 0 3 9 2 0, 2 2 8 1 1, 7 7 0 0 0, 3 2 6 3 0, 2 5 3 2 2, 6 5 2 1 0, 0 2 2 3 7"
    counts = np.array([row.split() for row in votes.split(", ")], dtype=int)
    found = fleiss(Answers.from_table([np.repeat(np.arange(1, 6), row) for row in counts]))
    assert round(found.value, 3) == 0.210
    assert (found.items, found.people) == (10, 14)


# Intervals


@pytest.mark.parametrize("level", [*LEVELS, "fleiss"])
def test_the_interval_is_that_of_drawing_items_and_asking_the_library_each_time(level):
    said = crowd(np.random.default_rng(1), 40, 3, 0.7, [0.4, 0.4, 0.2])
    found = fleiss(said, samples=60, seed=5) if level == "fleiss" else krippendorff(said, level, samples=60, seed=5)
    kinds = Kinds.of(said)
    slow = []
    for times in np.random.default_rng(5).multinomial(40, kinds.times / 40, size=60):
        drawn = np.repeat(kinds.counts.toarray(), times, axis=0)
        slow.append(fleiss_kappa(drawn) if level == "fleiss" else alpha(value_counts=drawn, level_of_measurement=level))
    tail = stats.norm.cdf(-np.sqrt(40 / 39) * stats.t.ppf(0.975, 39))
    assert (found.low, found.high) == pytest.approx(tuple(np.quantile(slow, [tail, 1 - tail])), abs=1e-9)


@pytest.mark.parametrize(("n", "prior", "known"), [(30, [0.5, 0.5], 0.6), (100, [0.5, 0.3, 0.2], 0.9), (100, [0.7, 0.3], 0.8)])
def test_intervals_hold_the_truth_about_as_often_as_they_say(n, prior, known):
    rng = np.random.default_rng(2)
    trials, held = 150, {"cohen": 0, "fleiss": 0, "krippendorff": 0, "pairs": 0}
    for _ in range(trials):
        said = crowd(rng, n, 3, known, prior)
        found = {
            "cohen": cohen(said, 0, 1),
            "fleiss": fleiss(said),
            "krippendorff": krippendorff(said),
            "pairs": cohen_pairs(said).mean,
        }
        for name, told in found.items():
            held[name] += told.low <= known**2 <= told.high
    assert all(times >= trials * 0.95 - 3 * np.sqrt(trials * 0.95 * 0.05) for times in held.values()), held  # three standard errors


def test_with_a_rare_value_and_few_items_they_hold_it_less_often_as_documented():
    rng = np.random.default_rng(3)
    held = [
        told.low <= 0.36 <= told.high
        for told in (cohen(crowd(rng, 30, 2, 0.6, [0.9, 0.1]), 0, 1) for _ in range(200))
        if told.value is not None
    ]
    assert 0.65 < np.mean(held) < 0.85


def test_the_mean_of_pairs_that_share_items_is_less_sure_than_that_of_pairs_that_do_not():
    rng = np.random.default_rng(4)
    apart = [crowd(rng, 100, 2, 0.8, [0.5, 0.5]) for _ in range(10)]
    ten = Answers(
        *(
            np.concatenate(part)
            for part in zip(*((a.item + 100 * n, a.person + 2 * n, a.value) for n, a in enumerate(apart)), strict=True)
        )
    )
    five = crowd(rng, 100, 5, 0.8, [0.5, 0.5])  # ten pairs too
    alone, shared = cohen_pairs(ten), cohen_pairs(five)
    assert len(alone.pairs) == len(shared.pairs) == 10
    assert (alone.mean.items, alone.mean.people, shared.mean.items, shared.mean.people) == (1000, 20, 100, 5)
    one = np.mean([p.kappa.high - p.kappa.low for p in alone.pairs])
    assert alone.mean.high - alone.mean.low == pytest.approx(one / np.sqrt(10), rel=0.05)
    assert shared.mean.high - shared.mean.low > 1.3 * (alone.mean.high - alone.mean.low)


def test_the_mean_of_one_pair_has_its_interval():
    for known in (0.7, 1.0):
        said = crowd(np.random.default_rng(5), 50, 2, known, [0.5, 0.5])
        one, mean = cohen(said, 0, 1), cohen_pairs(said).mean
        assert (mean.value, mean.low, mean.high) == pytest.approx((one.value, one.low, one.high), abs=1e-12)


@pytest.mark.parametrize("n", [2, 10, 100])
def test_nobody_is_certain_because_everybody_agreed(n):
    """The bootstrap, and the usual standard error, would say from 1 to 1."""
    said = Answers.from_table(np.repeat(np.arange(n)[:, None] % 2, 3, axis=1))
    worst = stats.binomtest(0, n).proportion_ci(method="wilson").high  # disagreements among so many items
    for found in (cohen(said, 0, 1), cohen_pairs(said, least=2).mean, fleiss(said), krippendorff(said)):
        assert (found.value, found.high, found.observed) == (1, 1, 1)
        assert found.low <= 1 - worst  # chance would disagree in about half
        assert n == 2 or found.low > 1 - 2.5 * worst


def test_one_item_tells_nothing():
    said = Answers.from_table([[1, 2]])
    for found in (cohen(said, 0, 1), fleiss(said), krippendorff(said, "interval")):
        assert (found.low, found.high) == (-1, 1)


def test_a_person_with_one_answer_throughout_leaves_kappa_at_zero_but_not_certain():
    found = cohen(Answers.from_table([[1, 1]] * 40 + [[1, 2]] * 10), 0, 1)
    assert found.value == pytest.approx(0)
    assert found.low < -0.3
    assert found.high > 0.3


def test_replicates_that_say_nothing_may_be_anything():
    """One item of twenty divides people: more than a third of the replicates miss it."""
    found = krippendorff(Answers.from_table([[1, 1, 1]] * 19 + [[1, 1, 2]]))
    assert found.value == pytest.approx(0, abs=0.1)
    assert (found.low, found.high) == (-1, 1)


# What must not matter


@settings(deadline=None)
@given(tables(), st.randoms(use_true_random=False))
def test_order_and_names_of_items_and_people_change_nothing(table, random):
    said = answers_of(table)
    rows = list(range(len(said)))
    random.shuffle(rows)
    items, people = random.sample(range(-50, 50), 12), random.sample(range(1000), 5)
    other = Answers(np.array(items)[said.item[rows]], np.array(people)[said.person[rows]], said.value[rows]) if rows else said
    for level in LEVELS:
        assert krippendorff(other, level, samples=20) == krippendorff(said, level, samples=20)
    one, two = cohen_pairs(said, 1).mean, cohen_pairs(other, 1).mean
    assert (one.items, one.people) == (two.items, two.people)
    if one.value is not None:
        assert (two.value, two.low, two.high) == pytest.approx((one.value, one.low, one.high), abs=1e-9)


def test_names_of_values_and_units_of_scales_change_nothing():
    said = crowd(np.random.default_rng(6), 80, 3, 0.7, [0.5, 0.3, 0.2])
    named = Answers(said.item, said.person, np.array([40, 7, 19])[said.value])
    for measure in (fleiss, krippendorff, lambda x: cohen(x, 0, 1)):
        assert measure(named).value == pytest.approx(measure(said).value, abs=1e-12)
    scaled = Answers(said.item, said.person, 1e-9 * said.value - 3)
    one, two = krippendorff(said, "interval"), krippendorff(scaled, "interval")
    assert (one.value, one.low, one.high) == pytest.approx((two.value, two.low, two.high), abs=1e-6)


def test_the_seed_is_what_the_interval_depends_on():
    said = crowd(np.random.default_rng(7), 50, 3, 0.7, [0.5, 0.5])
    assert krippendorff(said, seed=1) == krippendorff(said, seed=1)
    assert krippendorff(said, seed=1).low != krippendorff(said, seed=2).low


# Where there is no value, or no use


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (Answers.of([]), "nobody answered anything yet"),
        (Answers.of([(1, 1, 0), (2, 1, 1)]), "no item has answers of two people"),
        (Answers.of([(1, 1, 0), (2, 2, 1)]), "no item has answers of two people"),
        (Answers.of([(1, 1, 4), (1, 2, 4), (2, 1, 4), (2, 2, 4)]), "all 4 answers are the value 4, so chance alone"),
    ],
)
def test_undefined_says_why(said, reason):
    for found in (fleiss(said), *(krippendorff(said, level) for level in LEVELS)):
        assert found.value is None
        assert found.reason.startswith(reason)
        assert str(found) == f"undefined: {found.reason}"
        assert found.people == len(set(said.person.tolist()))
        assert found.left_out + found.items == len(set(said.item.tolist()))
    assert cohen(said, 1, 2).value is None
    mean = cohen_pairs(said, 1).mean
    assert mean.value is None
    assert mean.reason.endswith(".")


def test_undefined_kappas_of_two_people():
    said = Answers.of([(1, 1, 0), (1, 2, 0), (2, 1, 0), (2, 2, 0), (3, 3, 1)])
    assert cohen(said, 1, 2).reason.startswith("both people gave all 2 items the value 0")
    assert cohen(said, 1, 2).observed == 1
    assert cohen(said, 1, 3).reason == "no item was answered by both person 1 and person 3. Ask them about the same items."
    assert cohen(said, 1, 99).value is None
    assert cohen_pairs(said, 2).mean.reason.startswith("the kappa of the one pair is undefined; of the first, both people gave")
    assert cohen_pairs(said, 3).mean.reason.startswith("no two people share 3 items; the most that two share is 2.")
    assert cohen_pairs(said, 3).few == 1


def test_the_mean_leaves_undefined_pairs_out():
    divided = [(n, p, n % 2) for n in range(4) for p in (1, 2)]
    said = Answers.of([*divided, *((n, p, 0) for n in range(10, 14) for p in (3, 4))])
    found = cohen_pairs(said, 4)
    assert [pair.kappa.value for pair in found.pairs] == [1.0, None]
    assert (found.mean.value, found.mean.items, found.mean.people) == (1.0, 4, 2)
    assert mean_kappa([]) is None


def test_fleiss_does_not_choose_items_unasked():
    """A third person was asked only where two differed: the items with two answers are those on which they agreed."""
    said = Answers.from_table([[0, 0, np.nan]] * 5 + [[1, 1, np.nan]] * 5 + [[0, 1, 1]] * 4)
    with pytest.raises(CrossmatchError, match=r"10 with 2, 4 with 3\), and Fleiss' kappa needs as many for each. Take the items"):
        fleiss(said)
    two, three = fleiss(said, answers=2), fleiss(said, answers=3)
    assert (two.value, two.items, two.left_out) == (1, 10, 4)
    assert three.value < 0
    assert (three.items, three.left_out) == (4, 10)
    none = fleiss(said, answers=4)
    assert (none.value, none.reason, none.left_out) == (None, "no item has exactly 4 answers; they have 2, 3.", 14)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: Answers.of([(1, 1, 0), (1, 1, 1)]), "person 1 answered item 1 more than once"),
        (lambda: Answers.of([(1, 1, np.nan)]), "NaN or infinite"),
        (lambda: Answers(np.array([1]), np.array([1]), np.array(["yes"])), "Number the answers"),
        (lambda: Answers(np.array([1, 2]), np.array([1]), np.array([1])), "flat lists of one length"),
        (lambda: Answers(np.array([0.5]), np.array([1]), np.array([1])), "not whole"),
        (lambda: Answers.from_table([1, 2]), "items x people"),
        (lambda: cohen(Answers.of([]), 1, 1), "Give two people"),
        (lambda: cohen_pairs(Answers.of([]), 0), "give 1 or more"),
        (lambda: fleiss(Answers.of([]), answers=1), "agreement needs 2"),
        (lambda: fleiss(Answers.of([]), samples=1), "at least 2"),
        (lambda: krippendorff(Answers.of([]), samples=0), "at least 2"),
    ],
)
def test_what_cannot_be_used_is_refused(call, says):
    with pytest.raises(CrossmatchError, match=says):
        call()


def test_an_unknown_level_is_a_wrong_word():
    with pytest.raises(WrongWords, match="there is no level 'ratio'; there are nominal, ordinal, interval"):
        krippendorff(Answers.of([]), "ratio")


@pytest.mark.parametrize(("module", "call"), [("krippendorff", krippendorff), ("statsmodels.stats.inter_rater", fleiss)])
def test_a_missing_library_is_named_with_its_extra(monkeypatch, module, call):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingDependency, match=rf"needs {module.split('.')[0]}, .* pip install 'crossmatch\[study\]'"):
        call(Answers.from_table([[1, 2], [2, 2]]))


def test_answers_are_copied_and_cannot_be_written():
    value = np.array([1, 2])
    said = Answers(np.array([1, 2]), np.array([1, 1]), value)
    value[0] = 9
    assert said.value.tolist() == [1, 2]
    with pytest.raises(ValueError, match="read-only"):
        said.value[0] = 9
    assert Answers.of([(1, 1, True), (1, 2, False)]).value.dtype == np.int64
