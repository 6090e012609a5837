"""Scores mapped to the rating scale: the distribution is that of the ratings; order and scale of scores do not matter."""

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossmatch.captions.human.metric_agreement import measure_agreement
from crossmatch.captions.human.rating_scale_matching import map_to_rating_scale, match_rating_scale
from crossmatch.data.errors import CrossmatchError
from crossmatch.data.ratings import Ratings

rated = st.lists(st.tuples(st.integers(0, 5), st.integers(1, 4)), min_size=2, max_size=40)  # few values, many ties


@given(rated)
def test_each_level_has_as_many_captions_as_ratings(rows):
    scores, ratings = np.array(rows, dtype=float).T
    match = match_rating_scale(scores, ratings)
    levels, times = np.unique(ratings, return_counts=True)
    assert match.levels.tolist() == levels.tolist()
    assert match.level_weights.sum(axis=0) == pytest.approx(times)
    assert match.level_weights.sum(axis=1) == pytest.approx(np.ones(len(rows)))
    assert match.shares.sum() == pytest.approx(1)
    assert match.differences @ match.shares == pytest.approx(0, abs=1e-9)
    assert match.exact.value <= match.within_one.value + 1e-12
    middle = match.level_weights @ levels
    assert (np.diff(middle[np.argsort(scores, kind="stable")]) >= -1e-9).all()  # monotone


@given(rated, st.randoms(use_true_random=False))
def test_order_and_scale_of_scores_do_not_matter(rows, random):
    shuffled = list(rows)
    random.shuffle(shuffled)
    plain, reordered = (match_rating_scale(*np.array(order, dtype=float).T) for order in (rows, shuffled))
    assert plain.shares == pytest.approx(reordered.shares)
    rescaled = match_rating_scale(np.exp([score for score, _ in rows]), [rating for _, rating in rows])
    assert plain.level_weights == pytest.approx(rescaled.level_weights)


def test_ties_give_the_mean_over_all_orders():
    scores, ratings = [1.0, 2.0, 2.0, 2.0, 3.0], [2.0, 1.0, 3.0, 2.0, 2.0]
    slow = np.zeros(5)
    for order in permutations(range(5)):
        if [scores[at] for at in order] == sorted(scores):
            for level, at in zip(sorted(ratings), order, strict=True):
                slow[at] += level / 6
    match = match_rating_scale(scores, ratings)
    assert match.level_weights @ match.levels == pytest.approx(slow)


def test_perfect_and_reversed_metric():
    ratings = np.repeat([1.0, 2.0, 3.0, 4.0], 5)
    best, worst = match_rating_scale(ratings / 7, ratings), match_rating_scale(-ratings, ratings)
    assert best.exact.value == best.within_one.value == 1
    assert (best.mean_distance, worst.mean_distance, worst.exact.value, worst.within_one.value) == pytest.approx((0, 2, 0, 0.5))
    assert worst.shares[worst.differences == 3] == pytest.approx([0.25])


def test_constant_metric_gets_chance():
    ratings = np.array([1.0, 1, 2, 3, 3, 3])
    match = match_rating_scale(np.zeros(6), ratings)
    assert match.shares == pytest.approx(match.chance_shares)
    assert match.exact.value == pytest.approx((4 + 1 + 9) / 36)


def test_captions_of_one_image_are_a_cluster():
    ratings, scores = np.tile([1.0, 2.0], 20), np.tile([0.0, 1.0], 20)
    scores[:10] = 1 - scores[:10]
    independent = match_rating_scale(scores, ratings)
    clustered = match_rating_scale(scores, ratings, image=[f"i{n // 10}" for n in range(40)])
    assert clustered.exact.value == independent.exact.value
    assert clustered.exact.low < independent.exact.low


@pytest.mark.parametrize(
    ("scores", "ratings", "message"),
    [
        ([0.1], [1, 2], "one score for each rating"),
        ([], [], "one score"),
        ([np.nan, 1], [1, 2], "NaN"),
        ([1, 2], [1, np.inf], "infinite"),
    ],
)
def test_invalid_scores_and_ratings_are_refused(scores, ratings, message):
    with pytest.raises(CrossmatchError, match=message):
        match_rating_scale(scores, ratings)


def test_every_metric_is_mapped_to_the_levels_of_the_study():
    references = {"7": ["the dog runs"], "8": ["the cat", "cats"]}
    study = Ratings.from_rows("mine", [("7", "a dog", [1, 2]), ("8", "a cat", [4, 3])], references)
    matches = map_to_rating_scale(measure_agreement(study, ["bleu-1", "rouge-l"], samples=2))
    assert [match.levels.tolist() for match in matches.values()] == [[1, 2, 3, 4]] * 2
