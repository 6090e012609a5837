"""Scores on people's scale: the distribution is people's, and no order of captions or scale of scores matters."""

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossmatch.captions.human_scale import human_scale
from crossmatch.core.errors import CrossmatchError

rated = st.lists(st.tuples(st.integers(0, 5), st.integers(1, 4)), min_size=2, max_size=40)  # few values, many ties


@given(rated)
def test_each_level_holds_as_many_as_people_put_there(said):
    scores, ratings = np.array(said, dtype=float).T
    found = human_scale(scores, ratings)
    levels, times = np.unique(ratings, return_counts=True)
    assert found.levels.tolist() == levels.tolist()
    assert found.parts.sum(axis=0) == pytest.approx(times)
    assert found.parts.sum(axis=1) == pytest.approx(np.ones(len(said)))
    assert found.shares.sum() == pytest.approx(1)
    assert found.mean == pytest.approx(0, abs=1e-9)
    assert found.exact.value <= found.within_one.value + 1e-12
    middle = found.parts @ levels
    assert (np.diff(middle[np.argsort(scores, kind="stable")]) >= -1e-9).all()  # monotone


@given(rated, st.randoms(use_true_random=False))
def test_neither_order_nor_scale_matters(said, random):
    turned = list(said)
    random.shuffle(turned)
    one, two = (human_scale(*np.array(each, dtype=float).T) for each in (said, turned))
    assert one.shares == pytest.approx(two.shares)
    three = human_scale(np.exp([score for score, _ in said]), [rating for _, rating in said])
    assert one.parts == pytest.approx(three.parts)


def test_ties_are_the_mean_over_all_orders():
    scores, ratings = [1.0, 2.0, 2.0, 2.0, 3.0], [2.0, 1.0, 3.0, 2.0, 2.0]
    slow = np.zeros(5)
    for order in permutations(range(5)):
        if [scores[at] for at in order] == sorted(scores):
            for level, at in zip(sorted(ratings), order, strict=True):
                slow[at] += level / 6
    found = human_scale(scores, ratings)
    assert found.parts @ found.levels == pytest.approx(slow)


def test_a_perfect_and_a_reversed_metric():
    ratings = np.repeat([1.0, 2.0, 3.0, 4.0], 5)
    best, worst = human_scale(ratings / 7, ratings), human_scale(-ratings, ratings)
    assert best.exact.value == best.within_one.value == 1
    assert (best.off, worst.off, worst.exact.value, worst.within_one.value) == pytest.approx((0, 2, 0, 0.5))
    assert worst.shares[worst.differences == 3] == pytest.approx([0.25])


def test_a_constant_metric_is_what_knows_nothing():
    ratings = np.array([1.0, 1, 2, 3, 3, 3])
    found = human_scale(np.zeros(6), ratings)
    assert found.shares == pytest.approx(found.unrelated)
    assert found.exact.value == pytest.approx((4 + 1 + 9) / 36)


def test_the_distribution_of_other_people():
    found = human_scale([0.1, 0.2, 0.3, 0.4], [1, 1, 1, 1], distribution={1: 2, 2: 2})
    assert found.parts.argmax(axis=1).tolist() == [0, 0, 1, 1]
    assert (found.mean, found.exact.value) == (0.5, 0.5)


def test_captions_of_one_image_count_together():
    ratings, scores = np.tile([1.0, 2.0], 20), np.tile([0.0, 1.0], 20)
    scores[:10] = 1 - scores[:10]
    apart = human_scale(scores, ratings)
    together = human_scale(scores, ratings, image=[f"i{n // 10}" for n in range(40)])
    assert together.exact.value == apart.exact.value
    assert together.exact.low < apart.exact.low


@pytest.mark.parametrize(
    ("scores", "ratings", "said"),
    [
        ([0.1], [1, 2], "one score for each rating"),
        ([], [], "one score"),
        ([np.nan, 1], [1, 2], "NaN"),
        ([1, 2], [1, np.inf], "infinite"),
    ],
)
def test_what_cannot_be_put_on_a_scale_is_refused(scores, ratings, said):
    with pytest.raises(CrossmatchError, match=said):
        human_scale(scores, ratings)
    with pytest.raises(CrossmatchError, match="not all 0"):
        human_scale([1.0, 2.0], [1, 2], distribution={1: 0})
